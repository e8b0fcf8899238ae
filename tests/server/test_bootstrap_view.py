"""
X§3.2, decision 31: a bootstrap is one consistent view, whatever changes while it is read.

Its data must stay until the last byte is sent: messages before the earliest retained offset,
superseded snapshots, deleted streams.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.server.test_compression import DECODERS
from tests.server.test_expiry import in_seconds
from tests.support.http import Connection, Head, Response
from tests.support.publishing import (
    INLINE_BYTES_MAX,
    JSON,
    KINDS_ONCE,
    OCTETS,
    START,
    TEXT,
    Bootstrapped,
    bootstrap,
    new_stream,
    offset,
    on_disk,
    parse_bootstrap,
    publish,
    small_buffer_connection,
    snapshot_files,
    wait_for_files,
)
from tests.support.streams import Api, check_problem

pytestmark = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")

MIB = 1 << 20
NOISE = random.Random("view").randbytes(4 * MIB)


class SlowReader:
    """A bootstrap whose head is read at once, and its body later."""

    def __init__(self, connection: Connection, path: str, coding: str = "") -> None:
        headers = {"Accept-Encoding": coding} if coding else {}
        connection.send_request("GET", f"{path}/bootstrap", headers)
        self._coding = coding
        self.head: Head = connection.read_head()
        self._body: Iterator[bytes] = connection.iter_body(self.head)
        self._first = next(self._body)

    def rest(self) -> Bootstrapped:
        body = b"".join((self._first, *self._body))
        if self._coding:
            body = DECODERS[self._coding](body)
        return parse_bootstrap(
            Response(self.head.status, self.head.reason, self.head.headers, body)
        )


def wait_for_reclamation(api: Api, before: set[str], kept: int) -> None:
    """
    Wait until the garbage that exists now, and that no reader uses, is reclaimed.

    On disk: until later garbage, of another stream, is gone. In memory: until the sweeper has
    removed an expired stream twice, because it reclaims in between.
    """
    if on_disk(api):
        other = new_stream(api, TEXT, b"abc")
        publish(api, other, START, NOISE[: INLINE_BYTES_MAX + 1])
        wait_for_files(api, before, kept + 1)
        publish(api, other, offset(1, 3), b"small")
        wait_for_files(api, before, kept)
        return
    seen = 0
    while seen < 2:
        path = new_stream(api, TEXT, headers={"Stream-Expires-At": in_seconds(0.3)})
        with api.sse(path) as events:
            # 404 if it expired before the first read.
            if events.head.status == 200:
                assert list(events)[-1].json["streamDeleted"] is True
                seen += 1


def test_a_bootstrap_returns_the_state_at_its_start(api: Api) -> None:
    """
    Start four bootstraps of one stream at four states, and read them after the stream is deleted.

    Meanwhile: appends, small and large snapshots that move retention, deletion, a new stream of
    the same name, and reclamation. Each response is larger than all buffers on the way, so most of
    it is produced after these changes.
    """
    messages = [bytes([number]) + NOISE[: MIB - number] for number in range(14)]
    path = new_stream(api, OCTETS, *messages[:12])
    tails = [START]
    for message in messages:
        count, size = map(int, tails[-1].split("_"))
        tails.append(offset(count + 1, size + len(message)))
    large = (NOISE * 3)[: 10 * MIB]
    before = snapshot_files(api)
    with ExitStack() as connections:

        def begin(coding: str = "") -> SlowReader:
            return SlowReader(connections.enter_context(small_buffer_connection(api)), path, coding)

        readers = [begin()]
        publish(api, path, tails[2], large, "text/x-first")
        readers.append(begin())
        api.append(path, messages[12], content_type=OCTETS)
        publish(api, path, tails[3], NOISE[:1000], "text/x-second")
        readers.append(begin())
        api.append(path, messages[13], content_type=OCTETS)
        publish(api, path, tails[8], NOISE[MIB:], "text/x-third")
        readers.append(begin("gzip"))
        publish(api, path, tails[14], NOISE[:10], "text/x-fourth")
        assert api.request("DELETE", path).status == 204
        api.create(TEXT, b"another stream", path=path)
        publish(api, path, START, b"another state")
        # The two large snapshots that are still read.
        wait_for_reclamation(api, before, kept=2)
        check_problem(api.get(path, "offset=-1"), 410)
        third, second, first, none = [reader.rest() for reader in reversed(readers)]

    assert (none.snapshot_offset, none.next_offset) == ("-1", tails[12])
    assert (none.snapshot.body, none.messages) == (b"", messages[:12])
    assert (first.snapshot_offset, first.next_offset) == (tails[2], tails[12])
    assert (first.snapshot.content_type, first.snapshot.body) == ("text/x-first", large)
    assert first.messages == messages[2:12]
    assert (second.snapshot_offset, second.next_offset) == (tails[3], tails[13])
    assert (second.snapshot.content_type, second.snapshot.body) == ("text/x-second", NOISE[:1000])
    assert second.messages == messages[3:13]
    assert (third.snapshot_offset, third.next_offset) == (tails[8], tails[14])
    assert (third.snapshot.content_type, third.snapshot.body) == ("text/x-third", NOISE[MIB:])
    assert third.messages == messages[8:14]
    new = bootstrap(api, path)
    assert (new.snapshot.body, new.messages) == (b"another state", [b"another stream"])
    # All are read to the end, so no file is kept.
    wait_for_files(api, before, 0)


def test_a_view_can_start_inside_a_json_batch(api: Api) -> None:
    """The batch is one record, so elements before the snapshot are stored with those after it."""
    elements = [b'"%d %b"' % (number, b"x" * 4000) for number in range(3000)]
    path = new_stream(api, JSON, b"[" + b",".join(elements) + b"]")
    tails = [START]
    for element in elements:
        count, size = map(int, tails[-1].split("_"))
        tails.append(offset(count + 1, size + len(element) + 1))
    before = snapshot_files(api)
    publish(api, path, tails[100], b"first")
    with small_buffer_connection(api) as connection:
        reader = SlowReader(connection, path)
        for number in (200, 2999):
            publish(api, path, tails[number], b"later")
        wait_for_reclamation(api, before, kept=0)
        assert api.get(path, f"offset={tails[2999]}").body == b"[%b]" % elements[2999]
        assert reader.rest().messages == elements[100:]
    assert bootstrap(api, path).messages == elements[2999:]


def test_every_bootstrap_during_appends_and_snapshots_is_consistent(api: Api) -> None:
    """
    Snapshot and updates together have each message exactly once.

    Method: a writer appends 0, 1, 2, … and at times publishes a snapshot that lists all numbers
    before it, small and large ones alternately. Meanwhile bootstraps are read and folded.
    """
    path = new_stream(api, JSON)
    count = 400
    done = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        writer = Api(api.server)
        try:
            for number in range(count):
                at = writer.append(path, b"%d" % number, content_type=JSON)
                if number % 5 == 4:
                    padding = b" " * (INLINE_BYTES_MAX if number % 2 else 0)
                    publish(
                        writer, path, at, json.dumps(list(range(number + 1))).encode() + padding
                    )
        except BaseException as error:
            failures.append(error)
        finally:
            writer.close()
            done.set()

    writing = threading.Thread(target=write)
    writing.start()
    seen, last = 0, -1
    try:
        while not done.is_set() or last < count:
            found = bootstrap(api, path)
            folded = json.loads(found.snapshot.body) if found.snapshot_offset != "-1" else []
            if found.snapshot_offset != "-1":
                assert len(folded) == int(found.snapshot_offset[:16])
            folded += [int(message) for message in found.messages]
            assert folded == list(range(len(folded)))
            assert len(folded) == int(found.next_offset[:16])
            assert len(folded) >= last, "a later bootstrap knows less"
            seen, last = seen + 1, len(folded)
            assert not failures
    finally:
        writing.join()
    assert not failures
    assert last == count
    assert seen > 1
