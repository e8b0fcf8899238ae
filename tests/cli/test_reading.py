"""`read` and `tail`: the output, and the offsets in it."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.cli.messages import split_array
from tailrace.cli.tail import last_lines
from tailrace.client import Client
from tests.cli.conftest import Run

COUNT = 300
# The machine may be busy.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture
def numbers(client: Client, name: str) -> str:
    """A JSON stream of several chunks, appended five messages at a time."""
    stream = client.stream(name)
    stream.create("application/json")
    for at in range(0, COUNT, 5):
        stream.append_json(*range(at, at + 5))
    return name


def test_reading_can_continue_after_each_message(run: Run, numbers: str) -> None:
    """Also within a batch that was appended together."""
    lines = [json.loads(line) for line in run("read", numbers, "--json").lines]
    assert [line["value"] for line in lines] == list(range(COUNT))
    for at in (0, 3, 4, 100, 201, 298):
        rest = run("read", numbers, "--offset", lines[at]["next_offset"]).lines
        assert rest == [str(value) for value in range(at + 1, COUNT)]
        again = json.loads(
            run("read", numbers, "--offset", lines[at]["next_offset"], "--limit", "1", "--json").out
        )
        assert again["value"] == at + 1
        further = run("tail", numbers, "-n", "1", "--offset", again["next_offset"]).lines
        assert further == ([str(COUNT - 1)] if at + 2 < COUNT else [])


def test_read_has_a_limit(run: Run, numbers: str) -> None:
    assert run("read", numbers, "--limit", "7").lines == [str(at) for at in range(7)]
    assert run("read", numbers, "--limit", "0").lines == []


def test_a_limit_needs_a_json_stream(run: Run, name: str) -> None:
    run("create", name)
    assert run("read", name, "--limit", "1").code == 2


def test_an_invalid_offset(run: Run, numbers: str) -> None:
    for command in ("read", "tail"):
        assert run(command, numbers, "--offset", "1,x").code == 2
        done = run(command, numbers, "--offset", "nonsense")
        assert (done.code, "(400)" in done.err) == (1, True)


def test_read_from_the_tail_prints_nothing(run: Run, numbers: str) -> None:
    done = run("read", numbers, "--offset", "now")
    assert (done.code, done.out) == (0, b"")


def test_text_with_the_next_offset(run: Run, name: str) -> None:
    run("create", name)
    run("append", name, "é\n", "two")
    (line,) = run("read", name, "--json").lines
    found = json.loads(line)
    assert found["text"] == "é\ntwo"
    run("append", name, "three")
    assert run("read", name, "--offset", found["next_offset"]).out == b"three"


def test_bytes_are_printed_unchanged(run: Run, client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create("application/octet-stream")
    stream.append(bytes(range(256)))
    assert run("read", name).out == bytes(range(256))
    found = json.loads(run("read", name, "--json").out)
    assert base64.b64decode(found["base64"]) == bytes(range(256))


def test_half_a_character_is_printed_as_base64(run: Run, client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create("text/plain")
    stream.append("é".encode()[:1], "text/plain")
    found = json.loads(run("read", name, "--json").out)
    assert base64.b64decode(found["base64"]) == "é".encode()[:1]


def test_tail_prints_the_last_messages(run: Run, numbers: str) -> None:
    assert run("tail", numbers).lines == [str(at) for at in range(COUNT - 10, COUNT)]
    assert run("tail", numbers, "-n", "1").lines == [str(COUNT - 1)]
    assert run("tail", numbers, "-n", "0").lines == []
    assert len(run("tail", numbers, "-n", "1000").lines) == COUNT


def test_tail_prints_the_last_lines_of_text(run: Run, name: str) -> None:
    run("create", name)
    text = "".join(f"line {at}\n" for at in range(COUNT))
    run("append", name, stdin=text + "no end")
    assert run("tail", name, "-n", "2").text == f"line {COUNT - 1}\nno end"
    assert len(run("tail", name).lines) == 10


def test_tail_follows_to_the_end_of_a_closed_stream(run: Run, numbers: str) -> None:
    run("close", numbers)
    assert run("tail", numbers, "-f", "-n", "2").lines == [str(COUNT - 2), str(COUNT - 1)]
    everything = run("tail", numbers, "-f", "--offset", "-1")
    assert everything.lines == [str(at) for at in range(COUNT)]
    assert run("tail", numbers, "-f", "--offset", "-1,4").lines[0] == "4"


@untimed
@given(
    pieces=st.lists(st.text(alphabet="a\n", max_size=6).map(str.encode)),
    count=st.integers(min_value=0, max_value=4),
)
def test_last_lines_do_not_depend_on_chunks(pieces: list[bytes], count: int) -> None:
    kept = b""
    for piece in pieces:
        kept = last_lines(kept + piece, count)
    lines = b"".join(pieces).splitlines(keepends=True)
    assert kept == b"".join(lines[-count:] if count else [])


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@untimed
@given(values=st.lists(JSON_VALUES), indent=st.sampled_from([None, 0, 2]))
def test_an_array_is_split_into_equal_values(values: list[object], indent: int | None) -> None:
    cut = split_array(json.dumps(values, indent=indent).encode())
    assert cut is not None
    assert [json.loads(value) for value in cut] == values
    assert not any(b"\n" in value for value in cut)


def test_what_is_not_an_array_is_rejected() -> None:
    for data in (b"", b"1", b"[1", b"[1 2]", b"[1,]", b"[NaN]", b"\xff", b"{}"):
        assert split_array(data) is None
