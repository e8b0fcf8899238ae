"""
`read_rows` against a real server: every message of every range once, wherever responses end.

Goal: rows equal a naive reading of the same streams, row for row. Method: random streams of JSON,
text and bytes with their messages in a list beside them; random ranges, columns and budgets.
"""

import json
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client import AnswerInvalid, Client, Refused, Retry, StreamName, Unreachable
from tailrace.spark import rows
from tailrace.spark.rows import Range, RangeError, read_rows
from tests.support.server import ServerProcess

COLUMNS = (
    "range", "bucket", "stream", "message", "offset", "next_offset", "time", "content_type",
    "value", "size", "producer",
)  # fmt: skip
JSON = "application/json"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server for all tests that do not kill it, with a bucket."""
    with ServerProcess(tmp_path_factory.mktemp("rows")) as server, Client(server.url) as client:
        client.bucket("rows").create()
        yield client


class Written(NamedTuple):
    """A stream and all that it holds."""

    name: StreamName
    content_type: str
    messages: list[bytes]

    def boundary(self, count: int) -> str:
        """The offset after `count` messages."""
        comma = self.content_type == JSON
        size = sum(len(message) + comma for message in self.messages[:count])
        return f"{count:016d}_{size:016d}"

    def range(self, start: int, until: int) -> Range:
        return Range(self.name, self.boundary(start), self.boundary(until))

    def rows(self, index: int, start: int, until: int) -> list[dict[str, Any]]:
        return [
            {
                "range": index,
                "bucket": self.name.bucket,
                "stream": self.name.stream,
                "message": number,
                "offset": self.boundary(number),
                "next_offset": self.boundary(number + 1),
                "content_type": self.content_type,
                "value": self.messages[number],
                "size": len(self.messages[number]),
            }
            for number in range(start, until)
        ]


_count = 0


def write(client: Client, content_type: str, appends: list[list[bytes]], *, bare: bool) -> Written:
    """A new stream; in JSON an append has many messages, else it is one."""
    global _count
    _count += 1
    name = StreamName(None if bare else "rows", f"stream é {_count}")
    stream = client.stream(name.stream) if bare else client.bucket("rows").stream(name.stream)
    stream.create(content_type)
    messages: list[bytes] = []
    for some in appends:
        if content_type == JSON:
            stream.append(b"[%b]" % b",".join(some), JSON)
            messages += some
        else:
            for message in some:
                stream.append(message, content_type)
                messages.append(message)
    return Written(name, content_type, messages)


def taken(client: Client, ranges: list[Range], columns: tuple[str, ...] = COLUMNS) -> list[Any]:
    """Rows as dicts, and errors."""
    found: list[Any] = []
    for item in read_rows(client, ranges, columns):
        if isinstance(item, RangeError):
            found.append(item)
        else:
            assert item.schema.names == list(columns)
            found += item.to_pylist()
    return found


ELEMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
).map(lambda value: json.dumps(value).encode())
APPENDS = st.lists(st.lists(ELEMENTS, min_size=1, max_size=9), max_size=4)
STREAMS = st.lists(
    st.tuples(st.sampled_from((JSON, "text/plain", "application/octet-stream")), APPENDS),
    min_size=1,
    max_size=4,
)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), streams=STREAMS)
def test_rows_equal_the_messages_written(
    shared: Client, data: st.DataObject, streams: list[tuple[str, list[list[bytes]]]]
) -> None:
    written = [
        write(shared, kind, appends, bare=bool(number % 2))
        for number, (kind, appends) in enumerate(streams)
    ]
    requested: list[tuple[Written, int, int]] = []
    for _ in range(data.draw(st.integers(1, 12))):
        stream = data.draw(st.sampled_from(written))
        until = data.draw(st.integers(0, len(stream.messages)))
        requested.append((stream, data.draw(st.integers(0, until)), until))
    columns = tuple(data.draw(st.lists(st.sampled_from(COLUMNS), unique=True)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "BYTES_MAX", data.draw(st.integers(1, 200)))
        patched.setattr(rows, "RANGES_MAX", data.draw(st.integers(1, 12)))
        found = taken(shared, [stream.range(*ends) for stream, *ends in requested], columns)
    expected = [
        row
        for index, (stream, start, until) in enumerate(requested)
        for row in stream.rows(index, start, until)
    ]
    for row in found:
        row.pop("time", None)
        assert row.pop("producer", None) is None
    assert found == [
        {name: row[name] for name in columns if name not in ("time", "producer")}
        for row in expected
    ]


def test_the_types_of_columns(shared: Client) -> None:
    written = write(shared, "text/plain", [[b"x"]], bare=False)
    (batch,) = read_rows(shared, [written.range(0, 1)], COLUMNS)
    assert isinstance(batch, pa.RecordBatch)
    assert [str(field.type) for field in batch.schema] == [
        "int32", "string", "string", "int64", "string", "string", "timestamp[ms, tz=UTC]",
        "string", "binary", "int32", "string",
    ]  # fmt: skip


def test_times_and_producers_are_those_of_records(shared: Client) -> None:
    """A time for each append, which grows; a producer where one wrote."""
    stream = shared.bucket("rows").stream("produced")
    stream.create(JSON)
    with stream.producer("me", batch_count_max=10) as producer:
        for number in range(100):
            producer.append(str(number))
    stream.append_json("by hand")
    tail = stream.head().next_offset
    found = taken(shared, [Range(StreamName("rows", "produced"), "-1", tail)])
    assert [json.loads(row["value"]) for row in found] == [*range(100), "by hand"]
    assert [row["producer"] for row in found] == ["me"] * 100 + [None]
    times = [row["time"] for row in found]
    assert times == sorted(times)


def test_records_larger_than_a_batch(shared: Client) -> None:
    """Of many small messages, of few large ones, and of one."""
    small = write(shared, JSON, [[b"%d" % (n % 10) for n in range(200_000)]], bare=False)
    large = write(shared, JSON, [[b'"%b"' % (b"x" * 700_000)] * 12], bare=False)
    one = write(shared, "text/plain", [[b"y" * (5 << 20)]], bare=False)
    for written in (small, large, one):
        count = len(written.messages)
        ranges = [written.range(0, count), written.range(count // 3, count)]
        found = [
            item.column("value").to_pylist()
            for item in read_rows(shared, ranges, ("value",))
            if not isinstance(item, RangeError)
        ]
        values = [value for batch in found for value in batch]
        assert values == written.messages + written.messages[count // 3 :]


def test_errors_of_ranges_are_values(shared: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the index of the range, in whatever request it was."""
    monkeypatch.setattr(rows, "RANGES_MAX", 2)
    written = write(shared, "text/plain", [[b"a", b"b", b"c"]], bare=False)
    stream = shared.bucket("rows").stream(written.name.stream)
    stream.publish_snapshot("ab", written.boundary(2))
    missing = Range(StreamName("rows", "missing"), "-1", written.boundary(0))
    beyond = Range(written.name, written.boundary(2), f"{9:016d}_{9:016d}")
    ranges = [missing, written.range(0, 3), written.range(2, 3), beyond, missing]
    found = taken(shared, ranges, ("range", "value"))
    errors = [item for item in found if isinstance(item, RangeError)]
    assert [item for item in found if item not in errors] == [{"range": 2, "value": b"c"}]
    assert [(item.index, item.status, item.code, item.offset) for item in errors] == [
        (0, 404, "stream-not-found", None),
        (1, 410, "offset-gone", written.boundary(2)),
        (3, 400, "offset-beyond-tail", None),
        (4, 404, "stream-not-found", None),
    ]
    assert all(item.detail for item in errors)
    assert pickle.loads(pickle.dumps(errors)) == errors
    assert pickle.loads(pickle.dumps(ranges)) == ranges


@pytest.mark.slow
def test_more_ranges_than_a_request_may_have(shared: Client) -> None:
    written = write(shared, JSON, [[b"1", b"2", b"3"]], bare=False)
    ranges = [written.range(number % 3, 3) for number in range(25_000)]
    total: dict[int, int] = {}
    for batch in read_rows(shared, ranges, ("range",)):
        assert not isinstance(batch, RangeError)
        for item in batch.column("range").value_counts().to_pylist():
            total[item["values"]] = total.get(item["values"], 0) + item["counts"]
    assert total == {number: 3 - number % 3 for number in range(25_000)}


def test_no_ranges_and_no_messages(shared: Client) -> None:
    written = write(shared, JSON, [], bare=False)
    assert taken(shared, []) == taken(shared, [written.range(0, 0)] * 3) == []


def test_a_refusal_is_raised(shared: Client) -> None:
    written = write(shared, JSON, [], bare=False)
    with pytest.raises(Refused) as caught:
        taken(shared, [written.range(0, 0)], ("nothing",))
    assert caught.value.code == "request-invalid"


def test_an_empty_response_is_not_requested_for_ever(
    shared: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = write(shared, JSON, [[b"1"]], bare=False)
    empty = b"".join(shared.rows(b'{"ranges":[]}'))
    monkeypatch.setattr(Client, "rows", lambda _self, _body: iter_closing(empty))
    with pytest.raises(AnswerInvalid):
        taken(shared, [written.range(0, 1)])


def iter_closing(data: bytes) -> Iterator[bytes]:
    yield data


@pytest.mark.parametrize("kept", [0, 1, 8, 700, 3000, 5000])
def test_truncated_responses_are_requested_again(
    shared: Client, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """Each response is cut after more bytes than the one before: in its head or in a batch."""
    streams = [write(shared, JSON, [[b"%d" % n for n in range(9)]], bare=False) for _ in range(5)]
    ranges = [written.range(0, 9) for written in streams]
    client = Client(shared.url, retry=Retry(attempts_max=50, first_s=0.001))
    calls = 0
    request = client.rows

    def cut(self: Client, body: bytes) -> Iterator[bytes]:
        nonlocal calls
        calls += 1
        limit = kept + 500 * calls
        for piece in request(body):
            yield piece[:limit]
            limit -= len(piece)
            if limit <= 0:
                if calls % 2:
                    raise Unreachable(self.url, "cut")
                return

    monkeypatch.setattr(Client, "rows", cut)
    monkeypatch.setattr(rows, "BYTES_MAX", 20)
    with client:
        found = taken(client, ranges, ("range", "message"))
    assert found == [
        {"range": index, "message": number} for index in range(5) for number in range(9)
    ]
    assert calls > 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", [1, 3])
def test_a_killed_server_loses_and_repeats_nothing(
    server: ServerProcess, client: Client, moment: int
) -> None:
    """SIGKILL after some batches of a response that is larger than all buffers."""
    client.bucket("rows").create()
    text = b"x" * 2000
    streams = [
        write(client, JSON, [[b'"%d %b"' % (n, text) for n in range(500)]] * 8, bare=bool(at % 2))
        for at in range(6)
    ]
    ranges = [stream.range(1, 4000) for stream in streams]
    found: list[tuple[int, int]] = []
    for number, batch in enumerate(read_rows(client, ranges, ("range", "message", "value"))):
        assert not isinstance(batch, RangeError)
        for row in batch.to_pylist():
            assert row["value"] == streams[row["range"]].messages[row["message"]]
            found.append((row["range"], row["message"]))
        if number == moment:
            server.restart()
    assert found == [(index, number) for index in range(6) for number in range(1, 4000)]
    assert len([event for event in server.events() if event["event"] == "listening"]) == 2


def test_a_server_that_stays_down_is_unreachable(server: ServerProcess) -> None:
    retry = Retry(attempts_max=2, first_s=0.001)
    with Client(server.url, retry=retry) as client:
        client.bucket("rows").create()
        written = write(client, JSON, [[b"1"]], bare=False)
        server.kill()
        with pytest.raises(Unreachable):
            taken(client, [written.range(0, 1)])
