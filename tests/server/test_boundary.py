"""
The boundary of a bootstrap never occurs in its content.

The tests replace the random generator, so the first proposed boundaries occur in the content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.protocol.offset import Offset
from tailrace.protocol.state import Append, Delete
from tailrace.server.handlers.bootstrap import BootstrapHandler
from tailrace.server.handlers.snapshots import SnapshotHandlers
from tailrace.server.message import Frame, Request, Response
from tailrace.server.routing.routes import BOOTSTRAP, SNAPSHOT
from tailrace.server.routing.target import Target
from tests.contract.harness import KINDS, World
from tests.support.looping import for_each
from tests.support.multipart import boundary_of, split_strictly

KEY = b"s"
OCTETS = "application/octet-stream"
MIB = 1 << 20
BAD = ["0" * 32, "1" * 32, "2" * 32]
GOOD = "f" * 32


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with World(request.param, tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def proposed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens proposed so far; those in `BAD` come first."""
    tokens: list[str] = []

    def token_hex(_size: int) -> str:
        tokens.append([*BAD, GOOD][min(len(tokens), len(BAD))])
        return tokens[-1]

    monkeypatch.setattr("tailrace.server.handlers.bootstrap.secrets.token_hex", token_hex)
    return tokens


class CollectingSink:
    """A sink that is never full."""

    blocked = False

    def __init__(self) -> None:
        self.data = b""
        self.done = asyncio.Event()

    def write_frame(self, frame: Frame) -> None:
        self.data += frame.data

    def finish(self) -> None:
        self.done.set()

    def abort(self) -> None:
        raise AssertionError("the response was aborted")


def header(response: Response, name: bytes) -> str:
    [value] = [value for key, value in response.headers if key == name]
    return value.decode()


async def read_bootstrap(world: World) -> tuple[Response, bytes]:
    """A whole bootstrap."""
    request = Request("GET", b"/", b"", {}, b"")
    request.target = Target(BOOTSTRAP, KEY)
    response = await BootstrapHandler(world.engine).get(request)
    assert response.live is not None
    sink = CollectingSink()
    response.live.start(sink)
    await sink.done.wait()
    assert response.length == len(sink.data)
    return response, sink.data


def bootstrap(world: World) -> tuple[bytes, list[bytes]]:
    """Return the boundary and the bodies of all parts."""
    response, body = world.run(read_bootstrap(world))
    content_type = header(response, b"Content-Type")
    parts = split_strictly(content_type, body)
    return boundary_of(content_type), [part.body for part in parts]


def publish(world: World, at: Offset, body: bytes) -> None:
    async def published() -> int:
        request = Request("PUT", b"/", b"", {}, b"")
        request.target = Target(SNAPSHOT, KEY, at.token())
        snapshots = SnapshotHandlers(world.engine, 1 << 30)
        request.sink = snapshots.upload(request, first=True)
        request.sink.write(body)
        return (await snapshots.publish(request)).status

    assert world.run(published()) == 204


def boundary_with(world: World, token: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The boundary made from a token, taken from the bootstrap of an empty stream."""
    with monkeypatch.context() as patch:
        patch.setattr("tailrace.server.handlers.bootstrap.secrets.token_hex", lambda _size: token)
        return bootstrap(world)[0]


@pytest.fixture
def bad(world: World, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The boundaries made from the bad tokens. The stream exists and is empty."""
    world.create(KEY, content_type=OCTETS)
    return [boundary_with(world, token, monkeypatch) for token in BAD]


def append(world: World, *messages: bytes) -> Offset:
    for message in messages:
        tail = world.append(KEY, message, content_type=OCTETS).tail
    return tail


def test_an_empty_stream_uses_the_first_proposed_boundary(
    world: World, bad: list[bytes], proposed: list[str]
) -> None:
    assert bootstrap(world) == (bad[0], [b""])
    assert proposed == BAD[:1]


@pytest.mark.parametrize("form", [b"%b", b"--%b", b"\r\n--%b--\r\n", b"x%bx", b"%b%b"])
def test_a_boundary_in_a_message_is_not_used(
    world: World, bad: list[bytes], proposed: list[str], form: bytes
) -> None:
    """In any message, at any position; the next proposal is checked too."""
    messages = [form.replace(b"%b", boundary) for boundary in bad]
    append(world, b"first", *messages, b"last")
    boundary, bodies = bootstrap(world)
    assert boundary not in bad
    assert bodies == [b"", b"first", *messages, b"last"]
    assert proposed == [*BAD, GOOD]


def test_content_that_differs_from_the_boundary_in_one_byte_does_not_reject_it(
    world: World, bad: list[bytes], proposed: list[str]
) -> None:
    append(world, bad[0][:-1], bad[0][1:], bad[0].upper())
    assert bootstrap(world)[0] == bad[0]
    assert len(proposed) == 1


def test_a_boundary_in_a_large_message_is_not_used(
    world: World, bad: list[bytes], proposed: list[str]
) -> None:
    """Around every position where the search may resume."""
    size = 256 << 10
    messages = []
    for boundary, at in zip(bad, (size - 1, size - len(bad[0]) + 1, size - 20), strict=True):
        messages.append(b"x" * at + boundary + b"x" * size)
    append(world, *messages)
    boundary, bodies = bootstrap(world)
    assert (boundary in bad, bodies) == (False, [b"", *messages])
    assert proposed == [*BAD, GOOD]


@pytest.mark.parametrize("first", [1, 20, 40])
def test_a_boundary_across_two_messages_ends_no_part(
    world: World, bad: list[bytes], proposed: list[str], first: int
) -> None:
    """Neither message contains it, so it may be used or not: the parts are correct."""
    messages = [b"x" + bad[0][:first], bad[0][first:] + b"x"]
    append(world, *messages)
    assert bootstrap(world)[1] == [b"", *messages]


def test_a_boundary_between_large_messages_ends_no_part(
    world: World, bad: list[bytes], proposed: list[str]
) -> None:
    """The same for messages that are read one by one."""
    size = 256 << 10
    messages = [b"x" * size + bad[0][:20], bad[0][20:] + b"x" * size]
    append(world, *messages)
    assert bootstrap(world)[1] == [b"", *messages]


@for_each("size", [0, 100, 300 << 10])
def test_a_boundary_in_a_snapshot_is_not_used(
    world: World, bad: list[bytes], proposed: list[str], size: int
) -> None:
    proposed.clear()
    tail = append(world, b"first")
    content = bad[0] + b"x" * size + bad[1] + b"x" * size + bad[2]
    publish(world, tail, content)
    boundary, bodies = bootstrap(world)
    assert (boundary in bad, bodies) == (False, [content])
    assert proposed == [*BAD, GOOD]


@for_each("first", range(1, 41, 3))
@for_each("last", [False, True])
def test_a_boundary_across_two_chunks_of_a_snapshot_is_not_used(
    world: World, bad: list[bytes], proposed: list[str], first: int, last: bool
) -> None:
    """A snapshot is read in chunks of 1 MiB; the last may be shorter than a boundary."""
    proposed.clear()
    tail = append(world, b"first")
    content = b"x" * (MIB - first) + bad[0] + (b"" if last else b"x" * MIB)
    assert content[:MIB].endswith(bad[0][:first])
    publish(world, tail, content)
    boundary, bodies = bootstrap(world)
    assert (boundary, bodies) == (bad[1], [content])
    assert proposed == BAD[:2]


def test_a_boundary_across_the_snapshot_and_a_message_ends_no_part(
    world: World, bad: list[bytes], proposed: list[str]
) -> None:
    tail = append(world, b"first")
    append(world, bad[0][20:])
    publish(world, tail, bad[0][:20])
    assert bootstrap(world)[1] == [bad[0][:20], bad[0][20:]]


def test_a_boundary_in_messages_that_are_not_retained_is_used(
    world: World, bad: list[bytes], proposed: list[str]
) -> None:
    """Only the content of the response is searched."""
    tail = append(world, bad[0])
    append(world, b"last")
    publish(world, tail, b"state")
    assert bootstrap(world) == (bad[0], [b"state", b"last"])
    assert len(proposed) == 1


def test_a_boundary_in_a_json_element_is_not_used(
    world: World, monkeypatch: pytest.MonkeyPatch, proposed: list[str]
) -> None:
    """In a batch, as a whole string and as part of one."""
    world.create(KEY, content_type="application/json")
    bad = [boundary_with(world, token, monkeypatch) for token in BAD]
    elements = [b"1", b'"%b"' % bad[0], b'{"--%b":0}' % bad[1], b'["--%b--"]' % bad[2]]
    batch = b"[" + b",".join(elements) + b"]"
    world.append(KEY, batch, content_type="application/json")
    boundary, bodies = bootstrap(world)
    assert (boundary in bad, bodies) == (False, [b"", *elements])
    assert proposed == [*BAD, GOOD]


@pytest.mark.parametrize("what", ["append", "delete", "nothing"])
def test_up_to_date_is_false_if_the_stream_changed_during_the_search(
    world: World, bad: list[bytes], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """
    Decision 29, for changes while the content is searched.

    They are not in the response, which is the view at its start. Method: only bad boundaries are
    proposed until the change is made.
    """
    messages = [*[b"x" * (300 << 10)] * 3, bad[0]]
    tail = append(world, *messages)
    done: list[object] = []

    def token_hex(_size: int) -> str:
        return GOOD if done else BAD[0]

    monkeypatch.setattr("tailrace.server.handlers.bootstrap.secrets.token_hex", token_hex)

    async def meanwhile() -> tuple[Response, bytes]:
        task = asyncio.ensure_future(read_bootstrap(world))
        await asyncio.sleep(0.01)
        assert not task.done()
        if what == "append":
            world.engine.submit(KEY, Append(b"later", OCTETS), done.append)
        elif what == "delete":
            world.engine.submit(KEY, Delete(), done.append)
        else:
            done.append(None)
        return await task

    response, body = world.run(meanwhile())
    assert header(response, b"Stream-Next-Offset") == tail.token()
    assert header(response, b"Stream-Up-To-Date") == ("true" if what == "nothing" else "false")
    parts = split_strictly(header(response, b"Content-Type"), body)
    assert [part.body for part in parts] == [b"", *messages]
