"""
Any history of buckets, streams and snapshots, over HTTP and over restarts, against the model.

One real server on RocksDB serves all examples, each in buckets of its own, and reclaims what is
superseded all the time. It is stopped and killed in between; nothing is under way then, so that all
that got a response must be there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tailrace.protocol.producer import ProducerHeaders
from tests.crash.extensions_model import (
    Expected,
    Place,
    ServerModel,
    StreamModel,
    place_before,
    token,
)
from tests.crash.snapshot_load import SweepingServer
from tests.protocol.model import (
    APPENDS,
    BINARY,
    CREATES,
    JSON,
    TEXT,
    AppendCase,
    Body,
    CreateCase,
)
from tests.support.http import Response
from tests.support.server import ServerProcess
from tests.support.streams import Api
from tests.support.together import wait_until

CHUNK_BYTES = 300
BUCKETS = 2
# One is called like what lies below a stream, one must be percent-encoded.
STREAMS = ("a", "aa", "snapshot", "ü b")
SIZES = (
    0,
    1,
    900,
    30_000,
    256 << 10,
    (256 << 10) + 1,
    300 << 10,
    1 << 20,
    (1 << 20) + 1,
    2_600_000,
)
TYPES = ("application/octet-stream", "application/json", "text/plain; charset=utf-8")

_numbers = count()


@lru_cache(maxsize=64)
def blob(size: int, seed: int) -> bytes:
    """Content for a snapshot."""
    return random.Random(f"{size}/{seed}").randbytes(size)


def elements(body: list[bytes]) -> Body:
    return Body(b"[" + b", ".join(body) + b"]", tuple(body))


_PLAIN = st.binary(min_size=1, max_size=400).map(lambda raw: Body(raw, None))
_ELEMENTS = st.lists(
    st.sampled_from([b"1", b'"x,y"', b'{"k": [1, 2]}', b"[]", b'"' + b"z" * 250 + b'"']),
    min_size=1,
    max_size=6,
).map(elements)
_CLAIMS = st.builds(ProducerHeaders, st.sampled_from(["p", "q"]), st.just(0), st.integers(0, 3))
_SIZES = st.sampled_from(SIZES)
_SEEDS = st.integers(0, 2)
_TYPES = st.sampled_from(TYPES)
_BUCKETS = st.integers(0, BUCKETS - 1)
_STREAMS = st.sampled_from(STREAMS)
_MOSTLY = st.sampled_from([True] * 14 + [False])


class ExtensionsAgainstModel(RuleBasedStateMachine):
    """The test sets the server, which outlives the examples."""

    server: ClassVar[ServerProcess]
    restarts: ClassVar[list[str]]

    def __init__(self) -> None:
        super().__init__()
        self.api = Api(self.server)
        self.model = ServerModel()
        self.names = [f"model-{next(_numbers)}" for _ in range(BUCKETS)]
        self.steps = 0

    def teardown(self) -> None:
        """Compare once more, then leave nothing behind."""
        try:
            self.check_all()
            for bucket, streams in list(self.model.buckets.items()):
                for stream in list(streams):
                    self.expect(self.model.delete(bucket, stream), "DELETE", bucket, stream)
                self.expect(self.model.delete_bucket(bucket), "DELETE", bucket)
        finally:
            self.api.close()

    # -- asking ------------------------------------------------------------------------------

    def ask(
        self,
        method: str,
        bucket: str,
        *rest: str,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response:
        self.steps += 1
        path = "/" + "/".join(quote(segment, safe="") for segment in (bucket, *rest))
        return self.api.request(method, f"{path}?{query}" if query else path, headers, body)

    def expect(self, expected: Expected, method: str, bucket: str, *rest: str) -> None:
        expected.check(self.ask(method, bucket, *rest))

    def pick(self, data: st.DataObject) -> tuple[str, str]:
        """Mostly a stream that exists; a bucket or a stream that does not, too."""
        buckets = self.model.buckets
        there = [(bucket, stream) for bucket, streams in buckets.items() for stream in streams]
        if data.draw(_MOSTLY) and there:
            return data.draw(st.sampled_from(there))
        return self.names[data.draw(_BUCKETS)], data.draw(_STREAMS)

    def draw_offset(self, data: st.DataObject, stream: StreamModel | Expected) -> str:
        """An offset that is, was, or never can be one of a stream."""
        places: list[Place] = [(0, 0)] if isinstance(stream, Expected) else stream.places
        kept = places if isinstance(stream, Expected) else places[stream.earliest[0] :]
        kind = data.draw(
            st.sampled_from(["kept"] * 7 + ["tail"] * 3 + ["any", "off", "off", "beyond", "none"])
        )
        if kind == "none":
            return data.draw(
                st.sampled_from(["0", "-1", "now", "0_0", "x" * 33, token((0, 0)) + "0"])
            )
        if kind == "tail":
            return token(places[-1])
        message, byte = data.draw(st.sampled_from(places if kind == "any" else kept))
        if kind == "off":
            message, byte = data.draw(
                st.sampled_from([(message, byte + 1), (message + 1, byte), (message, byte - 1)])
            )
        elif kind == "beyond":
            message, byte = data.draw(
                st.sampled_from([(places[-1][0] + 1, places[-1][1] + 9), (message, 10**15)])
            )
        return token((message, max(0, byte)))

    # -- buckets -----------------------------------------------------------------------------

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """A bucket with a stream of each kind, most of which have content."""
        bucket = self.names[0]
        self.expect(self.model.create_bucket(bucket), "PUT", bucket)
        for stream, kind in zip(STREAMS, (BINARY, JSON, TEXT), strict=False):
            self._create(bucket, stream, CreateCase(kind, None, False, Body(b"", ())))
            self._grow(data, bucket, stream, data.draw(st.integers(0, 3)), None)

    @rule(bucket=_BUCKETS)
    def create_bucket(self, bucket: int) -> None:
        name = self.names[bucket]
        self.expect(self.model.create_bucket(name), "PUT", name)
        self.expect(self.model.describe(name), "GET", name)

    @rule(bucket=_BUCKETS)
    def delete_bucket(self, bucket: int) -> None:
        name = self.names[bucket]
        self.expect(self.model.delete_bucket(name), "DELETE", name)
        self.expect(self.model.describe(name), "GET", name)

    @rule(
        bucket=_BUCKETS,
        prefix=st.sampled_from(["", "", "a", "ü", "zz"]),
        after=st.sampled_from(["", "", *STREAMS]),
        limit=st.sampled_from([1, 2, 1000]),
    )
    def list_streams(self, bucket: int, prefix: str, after: str, limit: int) -> None:
        """From any place on, and from there page by page to the end."""
        name = self.names[bucket]
        while True:
            query = f"prefix={quote(prefix)}&after={quote(after)}&limit={limit}"
            response = self.ask("GET", name, "streams", query=query)
            self.model.list(name, prefix, after, limit).check(response)
            streams = self.model.buckets.get(name, {})
            left = sorted(
                (item for item in streams if item.startswith(prefix) and item > after),
                key=str.encode,
            )
            if len(left) <= limit:
                return
            after = left[limit - 1]

    # -- streams -----------------------------------------------------------------------------

    @rule(bucket=_BUCKETS, stream=_STREAMS, case=CREATES)
    def create(self, bucket: int, stream: str, case: CreateCase) -> None:
        self._create(self.names[bucket], stream, replace(case, ttl_s=None))

    @rule(bucket=_BUCKETS, stream=_STREAMS, kind=st.sampled_from([BINARY, TEXT, JSON]))
    def create_open(self, bucket: int, stream: str, kind: str) -> None:
        self._create(self.names[bucket], stream, CreateCase(kind, None, False, Body(b"", ())))

    def _create(self, bucket: str, stream: str, case: CreateCase) -> None:
        headers = {"Content-Type": case.content_type}
        if case.closed:
            headers["Stream-Closed"] = "true"
        response = self.ask("PUT", bucket, stream, headers=headers, body=case.body.raw)
        self.model.create(bucket, stream, case).check(response)
        self.check_head(bucket, stream)

    @rule(data=st.data(), case=APPENDS)
    def append(self, data: st.DataObject, case: AppendCase) -> None:
        """Anything at all: other types, no body, retries, gaps, zombies."""
        self._append(*self.pick(data), case)

    @rule(data=st.data(), times=st.integers(1, 5), claim=st.one_of(st.none(), _CLAIMS))
    def grow(self, data: st.DataObject, times: int, claim: ProducerHeaders | None) -> None:
        """Appends that fit their stream, as far as the producer's sequence does."""
        self._grow(data, *self.pick(data), times, claim)

    def _grow(
        self,
        data: st.DataObject,
        bucket: str,
        stream: str,
        times: int,
        claim: ProducerHeaders | None,
    ) -> None:
        model = self.model.find(bucket, stream)
        for _ in range(times):
            kind = TEXT if isinstance(model, Expected) else model.content_type
            is_json = not isinstance(model, Expected) and model.json
            body = data.draw(_ELEMENTS if is_json else _PLAIN)
            self._append(bucket, stream, AppendCase(body, kind, False, claim, None))

    def _append(self, bucket: str, stream: str, case: AppendCase) -> None:
        headers: dict[str, str] = {}
        if case.content_type is not None:
            headers["Content-Type"] = case.content_type
        if case.closes:
            headers["Stream-Closed"] = "true"
        if case.seq is not None:
            headers["Stream-Seq"] = case.seq
        if case.claim is not None:
            headers["Producer-Id"] = case.claim.id
            headers["Producer-Epoch"] = str(case.claim.epoch)
            headers["Producer-Seq"] = str(case.claim.seq)
        response = self.ask("POST", bucket, stream, headers=headers, body=case.body.raw)
        self.model.append(bucket, stream, case).check(response)
        self.check_head(bucket, stream)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        bucket, stream = self.pick(data)
        self.expect(self.model.delete(bucket, stream), "DELETE", bucket, stream)
        self.check_head(bucket, stream)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """From any offset on, and from there chunk by chunk to the end."""
        bucket, stream = self.pick(data)
        model = self.model.find(bucket, stream)
        offset: str | None = data.draw(
            st.one_of(st.sampled_from([None, "-1", "now"]), st.just("token"), st.just("token"))
        )
        if offset == "token":
            offset = self.draw_offset(data, model)
        self._read_on(bucket, stream, model, offset)

    def _read_on(
        self, bucket: str, stream: str, model: StreamModel | Expected, offset: str | None
    ) -> None:
        more = offset
        while True:
            query = "" if more is None else f"offset={more}"
            response = self.ask("GET", bucket, stream, query=query)
            if isinstance(model, Expected):
                if response.status != 400:
                    model.check(response)
                return
            expected, more = model.read(more, CHUNK_BYTES)
            expected.check(response)
            if more is None:
                return

    # -- snapshots ---------------------------------------------------------------------------

    @rule(data=st.data(), size=_SIZES, seed=_SEEDS, content_type=_TYPES)
    def publish(self, data: st.DataObject, size: int, seed: int, content_type: str) -> None:
        bucket, stream = self.pick(data)
        offset = self.draw_offset(data, self.model.find(bucket, stream))
        self._publish(bucket, stream, offset, blob(size, seed), content_type)

    @rule(data=st.data(), sizes=st.lists(_SIZES, min_size=1, max_size=3))
    def supersede(self, data: st.DataObject, sizes: list[int]) -> None:
        """One after the other, near the tail, with messages before and after."""
        bucket, stream = self.pick(data)
        for size in sizes:
            self._grow(data, bucket, stream, 2, None)
            model = self.model.find(bucket, stream)
            if not isinstance(model, Expected):
                place = data.draw(st.sampled_from(model.places[-3:]))
                self._publish(bucket, stream, token(place), blob(size, 0), TYPES[0])

    @rule(data=st.data(), same=st.booleans(), size=_SIZES)
    def publish_again(self, data: st.DataObject, same: bool, size: int) -> None:
        """Where there is one: the same bytes, other ones, or another type."""
        bucket, stream = self.pick(data)
        model = self.model.find(bucket, stream)
        if isinstance(model, Expected) or model.snapshot is None:
            return
        now = model.snapshot
        content, content_type = now.content, now.content_type
        if not same:
            content, content_type = data.draw(
                st.sampled_from([(blob(size, 9), content_type), (content, "a/b")])
            )
        self._publish(bucket, stream, token(now.at), content, content_type)

    def _publish(
        self, bucket: str, stream: str, offset: str, content: bytes, content_type: str
    ) -> None:
        headers = {"Content-Type": content_type}
        response = self.ask(
            "PUT", bucket, stream, "snapshot", offset, headers=headers, body=content
        )
        model = self.model.find(bucket, stream)
        if isinstance(model, Expected):
            assert response.status in (model.status, 400)
        else:
            model.publish(offset, content, content_type).check(response)
            self.expect(model.bootstrap(), "GET", bucket, stream, "bootstrap")
        self.check_head(bucket, stream)

    @rule(data=st.data())
    def get_snapshot(self, data: st.DataObject) -> None:
        """The latest, and at any offset: only the latest is there."""
        bucket, stream = self.pick(data)
        model = self.model.find(bucket, stream)
        if isinstance(model, Expected):
            self.expect(model, "GET", bucket, stream, "snapshot")
            self.expect(model, "GET", bucket, stream, "snapshot", token((0, 0)))
            return
        self.check_snapshot(bucket, stream, model)
        place = data.draw(st.sampled_from(model.places))
        for offset in (token(place), token(place_before(model.places, place[1]))):
            self.expect(model.get_snapshot(offset), "GET", bucket, stream, "snapshot", offset)
            self.expect(model.delete_snapshot(offset), "DELETE", bucket, stream, "snapshot", offset)

    @rule(data=st.data())
    def bootstrap(self, data: st.DataObject) -> None:
        bucket, stream = self.pick(data)
        model = self.model.find(bucket, stream)
        expected = model if isinstance(model, Expected) else model.bootstrap()
        self.expect(expected, "GET", bucket, stream, "bootstrap")

    # -- restarts ----------------------------------------------------------------------------

    @precondition(lambda self: self.steps > 40)
    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        self.api.close()
        if not kill:
            assert self.server.terminate() == 0
        self.server.restart()
        self.restarts.append("killed" if kill else "stopped")
        self.check_all()
        self.steps = 0

    # -- the whole -----------------------------------------------------------------------------

    def check_head(self, bucket: str, stream: str) -> None:
        model = self.model.find(bucket, stream)
        expected = model if isinstance(model, Expected) else model.head()
        self.expect(expected, "HEAD", bucket, stream)

    def check_snapshot(self, bucket: str, stream: str, model: StreamModel) -> None:
        self.expect(model.latest(), "GET", bucket, stream, "snapshot")
        if model.snapshot is not None:
            at = token(model.snapshot.at)
            self.expect(model.get_snapshot(at), "GET", bucket, stream, "snapshot", at)

    def check_all(self) -> None:
        for bucket in self.names:
            self.expect(self.model.describe(bucket), "GET", bucket)
            response = self.ask("GET", bucket, "streams")
            self.model.list(bucket, "", "", 1000).check(response)
            for stream in STREAMS:
                model = self.model.find(bucket, stream)
                self.check_head(bucket, stream)
                if isinstance(model, Expected):
                    continue
                self.check_snapshot(bucket, stream, model)
                self.expect(model.bootstrap(), "GET", bucket, stream, "bootstrap")
                self._read_on(bucket, stream, model, token(model.earliest))
                self._read_on(bucket, stream, model, None)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    limits = ("--chunk-bytes", str(CHUNK_BYTES), "--read-bytes-max", str(CHUNK_BYTES))
    with SweepingServer(tmp_path / "data", *limits) as running:
        yield running


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_any_history_gives_the_responses_of_the_model(server: ServerProcess) -> None:
    """
    Goal: buckets, streams, snapshots and bootstraps respond as the model does, whatever came
    before, and go on so after a stop or a SIGKILL; what was superseded or deleted leaves no file.

    Method: random histories; every response is compared by status, code, headers and bytes, and
    after a restart all that there is. Each history deletes its streams at its end.
    """

    class Machine(ExtensionsAgainstModel):
        pass

    Machine.server, Machine.restarts = server, []
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=50,
            deadline=None,
            # To shrink a failure takes minutes of restarts: take this line away if it is worth it.
            phases=(Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert set(Machine.restarts) == {"killed", "stopped"}, Machine.restarts
    files = server.data_dir / "snapshots"
    wait_until(lambda: not files.exists() or not list(files.iterdir()))
    failures = [line for line in server.log if "error" in line.lower()]
    assert not failures, failures
