"""
A producer without threads, sockets or time: Hypothesis schedules its workers.

The server of these tests decides by the rules of `tailrace.protocol.producer`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.batch_queue import BatchQueue, ProducerOptions
from tailrace.client.encoding import encode_json
from tailrace.client.errors import (
    NotFound,
    ProducerFenced,
    ProducerReused,
    ServerFailed,
    StreamClosed,
    TailraceError,
    Unreachable,
)
from tailrace.client.flow import Body, Evaluate, Flow, HttpRequest, HttpResponse, Retry, Send, Wait
from tailrace.client.producer_flows import ProducerFlows
from tailrace.client.requests import Options
from tailrace.client.values import Appended
from tailrace.protocol.errors import ProducerEpochStart
from tailrace.protocol.errors import ProducerFenced as Fenced
from tailrace.protocol.errors import ProducerGap as Gap
from tailrace.protocol.producer import ProducerHeaders, ProducerState, admit, is_retry

URL = "http://server/v1/stream/s"
PATIENT = Retry(attempts_max=1000, first_s=0.01, longest_s=0.1, jitter=lambda: 1.0)


@dataclass
class ModelServer:
    """One JSON stream and its producers."""

    log: list[Any] = field(default_factory=list)
    producers: dict[str, ProducerState] = field(default_factory=dict)
    closed_by: ProducerHeaders | None = None
    refuses: int | None = None

    def post(self, call: HttpRequest) -> HttpResponse:
        if self.refuses is not None:
            return HttpResponse(self.refuses, {}, URL)
        name = call.headers["producer-id"]
        numbers = int(call.headers["producer-epoch"]), int(call.headers["producer-seq"])
        claim = ProducerHeaders(name, *numbers)
        if self.closed_by is not None and claim != self.closed_by:
            return HttpResponse(409, {"stream-closed": "true", "stream-next-offset": "end"}, URL)
        headers = {"stream-next-offset": str(len(self.log))}
        try:
            if is_retry(self.producers.get(name), claim):
                last = self.producers[name].last_seq
                return HttpResponse(204, {**headers, "producer-seq": str(last)}, URL)
            admit(self.producers.get(name), claim)
        except Fenced as fenced:
            return HttpResponse(403, {"producer-epoch": str(fenced.epoch)}, URL)
        except Gap as gap:
            return HttpResponse(409, {"producer-expected-seq": str(gap.expected_seq)}, URL)
        except ProducerEpochStart:
            return HttpResponse(400, {}, URL)
        self.producers[name] = ProducerState(claim.epoch, claim.seq)
        self.log.extend(json.loads(call.body or b"[]"))
        if call.headers.get("stream-closed"):
            self.closed_by = claim
        return HttpResponse(200, {"stream-next-offset": str(len(self.log))}, URL)


class SteppedFlows(ProducerFlows):
    """A producer whose workers run one step at a time."""

    def __init__(self, world: World, options: ProducerOptions, retry: Retry) -> None:
        self._world = world
        super().__init__(URL, Options(retry=retry), options, lambda: world.now)

    def new_delivery(self) -> Future[Any]:
        return Future()

    def changing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def wait(self, ready: Callable[[], Any], timeout_s: Callable[[], float | None]) -> Any:
        return _Waiting(ready, timeout_s)

    def start_worker(self, worker: object) -> None:
        self._world.runs.append(_Run(self.work(worker)))


class World:
    """A producer, its workers, and the order in which they take steps."""

    def __init__(
        self,
        choose: Callable[[int], int],
        *,
        named: bool = False,
        retry: Retry = PATIENT,
        batch_count_max: int = 2,
        **options: Any,
    ) -> None:
        self.choose = choose
        self.server = ModelServer()
        self.now = 0.0
        self.errors: list[Exception] = []
        self.runs: list[_Run] = []
        self.faults = 0
        self.futures: list[Future[Any]] = []
        made = ProducerOptions(
            "me" if named else None,
            batch_count_max=batch_count_max,
            on_error=self.errors.append,
            **options,
        )
        self.flows = SteppedFlows(self, made, retry)
        self.queue = self.flows.queue
        self.queue.producer_id = "me"

    # -- the user ----------------------------------------------------------------------------

    def append(self, value: Any) -> None:
        future, wakes = self.queue.add(json.dumps(value).encode())
        self.futures.append(future)
        if wakes:
            self.flows.wake_workers()

    def run(self, flow: Flow[Any]) -> Any:
        """Take steps until a flow of the user has its result."""
        mine = _Run(flow)
        self.runs.append(mine)
        while not mine.ended:
            self.step()
        if mine.error is not None:
            raise mine.error
        return mine.result

    def step(self) -> None:
        """One of the runs that can continue does; if none can, time passes."""
        self.runs = [run for run in self.runs if not run.ended]
        able = [run for run in self.runs if run.is_ready(self.now)]
        if not self.runs:
            return
        if not able:
            wakes = [at for run in self.runs if (at := run.wakes_at(self.now)) is not None]
            assert wakes, "deadlock: every run waits for another"
            self.now = max(self.now, min(wakes)) + 1e-6
            return
        self._advance(able[self.choose(len(able))])

    def _advance(self, run: _Run) -> None:
        effect = run.effect
        if effect is None:
            run.go_on(None)
        elif isinstance(effect, Send):
            self._send(run, effect.request)
        elif isinstance(effect, Body):
            run.go_on(b"")
        elif isinstance(effect, Wait):
            run.go_on(None)
        else:
            run.go_on(run.found)

    def _send(self, run: _Run, call: HttpRequest) -> None:
        """A request that succeeds, is lost or fails before or after storing, or arrives twice."""
        fate = self.choose(12) if self.faults > 0 else 11
        self.faults -= fate < 6
        if fate == 0:
            run.go_on(Unreachable(URL, "not sent", sent=False))
        elif fate == 1:
            run.go_on(Unreachable(URL, "lost before"))
        elif fate == 2:
            self.server.post(call)
            run.go_on(Unreachable(URL, "lost after"))
        elif fate == 3:
            self.server.post(call)
            run.go_on(HttpResponse(503, {"retry-after": "0"}, URL))
        elif fate == 4:
            run.go_on(HttpResponse(429, {}, URL))
        elif fate == 5:
            self.server.post(call)
            run.go_on(self.server.post(call))
        else:
            run.go_on(self.server.post(call))


@dataclass
class _Waiting:
    ready: Callable[[], Any]
    timeout_s: Callable[[], float | None]


class _Run:
    """A flow, and the effect that it waits for."""

    def __init__(self, flow: Flow[Any]) -> None:
        self._flow = flow
        self.effect: Any = None
        self.found: Any = None
        self.ended = False
        self.result: Any = None
        self.error: Exception | None = None
        self._until = 0.0

    def go_on(self, outcome: Any) -> None:
        self._until, self.found = -1.0, None
        try:
            if isinstance(outcome, Exception):
                self.effect = self._flow.throw(outcome)
            else:
                self.effect = self._flow.send(outcome)
        except StopIteration as stop:
            self.ended, self.result = True, stop.value
        except Exception as error:
            self.ended, self.error = True, error
        else:
            if isinstance(self.effect, Evaluate):
                try:
                    self.effect = self.effect.function()
                except Exception as error:
                    self.go_on(error)

    def is_ready(self, now: float) -> bool:
        if isinstance(self.effect, _Waiting):
            # Once: what it found, it has taken.
            if self.found is None:
                self.found = self.effect.ready()
            return self.found is not None
        if isinstance(self.effect, Wait):
            if self._until < 0:
                self._until = now + self.effect.seconds
            return now >= self._until
        return True

    def wakes_at(self, now: float) -> float | None:
        if isinstance(self.effect, _Waiting):
            left = self.effect.timeout_s()
            return None if left is None else now + left
        return self._until


def queue_of(**options: Any) -> BatchQueue:
    return BatchQueue(ProducerOptions(**options), lambda: 0.0, Future)


def first(count: int) -> int:
    return 0


def check_each_message_is_stored_once_and_in_order(
    data: st.DataObject, count: int, faults: int
) -> None:
    """
    Goal: exactly once, in order, with several requests in flight.

    Method: any interleaving of workers and any fate of requests; then check the log alone.
    """
    choose = _chooser(data)
    world = World(choose, batch_count_max=choose(3) + 1)
    world.faults = faults
    for value in range(count):
        world.append(value)
        for _ in range(choose(4)):
            world.step()
    world.run(world.flows.flush())
    assert world.server.log == list(range(count))
    assert all(future.done() for future in world.futures)
    world.run(world.flows.close_stream())
    assert world.server.log == list(range(count))
    assert world.server.closed_by is not None
    assert (world.queue.count, world.queue.bytes) == (0, 0)


def check_a_fenced_producer_stores_nothing_afterwards(
    data: st.DataObject, count: int, faults: int
) -> None:
    """
    Another producer claims the id while batches are in flight; `auto_claim` does not take it back.

    The message of the new producer is the last in the log. No message is there twice or out of
    order, and every acknowledged message is there.
    """
    choose = _chooser(data)
    world = World(choose, named=True, auto_claim=True, batch_count_max=1)
    world.faults = faults
    at = choose(count)
    for value in range(count):
        if value == at:
            for _ in range(choose(8)):
                world.step()
            state = world.server.producers.get("me")
            if state is not None:
                world.server.post(_call("me", state.epoch + 1, 0, b"[99]"))
        try:
            world.append(value)
        except TailraceError:
            break
    with suppress(ProducerFenced, ProducerReused):
        world.run(world.flows.flush())
    failed = world.queue.failure
    assert world.errors == ([failed] if failed else [])
    log = world.server.log
    assert log == sorted(set(log))
    assert failed is not None or 99 not in log
    stored = [value for value, future in enumerate(world.futures) if _is_stored(future)]
    assert set(stored) <= set(log)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(1, 30), faults=st.integers(0, 40))
def test_each_message_is_stored_once_and_in_order(
    data: st.DataObject, count: int, faults: int
) -> None:
    check_each_message_is_stored_once_and_in_order(data, count, faults)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=400, deadline=None)
@given(data=st.data(), count=st.integers(1, 30), faults=st.integers(0, 40))
def test_each_message_is_stored_once_and_in_order_with_many_examples(
    data: st.DataObject, count: int, faults: int
) -> None:
    check_each_message_is_stored_once_and_in_order(data, count, faults)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(1, 20), faults=st.integers(0, 10))
def test_a_fenced_producer_stores_nothing_afterwards(
    data: st.DataObject, count: int, faults: int
) -> None:
    check_a_fenced_producer_stores_nothing_afterwards(data, count, faults)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=300, deadline=None)
@given(data=st.data(), count=st.integers(1, 20), faults=st.integers(0, 10))
def test_a_fenced_producer_stores_nothing_afterwards_with_many_examples(
    data: st.DataObject, count: int, faults: int
) -> None:
    check_a_fenced_producer_stores_nothing_afterwards(data, count, faults)


def _chooser(data: st.DataObject) -> Callable[[int], int]:
    return lambda count: data.draw(st.integers(0, count - 1))


def _is_stored(future: Future[Any]) -> bool:
    return future.done() and future.exception() is None


def _call(name: str, epoch: int, seq: int, body: bytes) -> HttpRequest:
    headers = {"producer-id": name, "producer-epoch": str(epoch), "producer-seq": str(seq)}
    return HttpRequest("POST", URL, headers, body)


class TestProbing:
    """A producer with a given id finds out whether the id was used before."""

    def test_a_new_id_begins_in_its_epoch(self) -> None:
        world = World(first, named=True, epoch=4)
        world.append("a")
        world.run(world.flows.flush())
        assert world.server.log == ["a"]
        assert world.server.producers["me"].epoch == 4

    def test_an_id_used_in_this_epoch_is_an_error(self) -> None:
        world = World(first, named=True)
        world.server.post(_call("me", 0, 0, b'["earlier"]'))
        world.append("a")
        with pytest.raises(ProducerReused) as caught:
            world.run(world.flows.flush())
        assert caught.value.expected_seq == 1
        assert "higher epoch" in str(caught.value)
        assert world.server.log == ["earlier"]

    @pytest.mark.parametrize(("held", "claimed"), [(0, 1), (5, 6)])
    def test_auto_claim_takes_the_next_epoch(self, held: int, claimed: int) -> None:
        world = World(first, named=True, auto_claim=True)
        world.server.post(_call("me", held, 0, b'["earlier"]'))
        world.append("a")
        world.run(world.flows.flush())
        assert world.server.log == ["earlier", "a"]
        assert (world.queue.epoch, world.server.producers["me"].epoch) == (claimed, claimed)

    def test_a_stale_epoch_is_a_fence(self) -> None:
        world = World(first, named=True, epoch=2)
        world.server.post(_call("me", 5, 0, b'["earlier"]'))
        world.append("a")
        with pytest.raises(ProducerFenced) as caught:
            world.run(world.flows.flush())
        assert caught.value.epoch == 5

    def test_a_higher_epoch_is_accepted(self) -> None:
        world = World(first, named=True, epoch=6)
        world.server.post(_call("me", 5, 0, b'["earlier"]'))
        world.append("a")
        world.run(world.flows.flush())
        assert world.server.log == ["earlier", "a"]

    @pytest.mark.parametrize("closes", [True, False])
    def test_two_concurrent_producers_do_not_both_close(self, closes: bool) -> None:
        """Their last batches look alike to the server; only one is stored."""
        mine, theirs = World(first, named=True), World(first, named=True)
        theirs.server = mine.server
        for world, value in ((mine, "mine"), (theirs, "theirs")):
            world.append(value)
            while not world.flows._is_probed:
                world.step()
        mine.run(mine.flows.close_stream() if closes else mine.flows.flush())
        with pytest.raises(ProducerReused if not closes else (ProducerReused, StreamClosed)):
            theirs.run(theirs.flows.close_stream())
        assert mine.server.log == ["mine"]

    @pytest.mark.parametrize("fate", [2, 3], ids=["lost after", "503 after"])
    def test_its_own_first_batch_is_recognized(self, fate: int) -> None:
        """It was stored, and its response lost: the duplicate is its own."""
        fates = iter([11, fate])
        world = World(lambda count: next(fates, 11) if count == 12 else 0, named=True)
        world.faults = 5
        world.append("once")
        world.run(world.flows.flush())
        assert world.server.log == ["once"]

    def test_a_sequence_number_that_was_not_sent_is_foreign(self) -> None:
        world = World(first, named=True, batch_count_max=1)
        world.append("a")
        world.run(world.flows.flush())
        for seq in (1, 2):
            world.server.post(_call("me", 0, seq, b'["theirs"]'))
        world.append("b")
        with pytest.raises(ProducerReused):
            world.run(world.flows.flush())

    def test_two_concurrent_claims_do_not_both_succeed(self) -> None:
        """Between the probe and the first batch, another producer takes the same epoch."""
        world = World(first, named=True)
        world.append("a")
        while world.queue.epoch == 0 and not world.flows._is_probed:
            world.step()
        world.server.post(_call("me", 0, 0, b'["theirs"]'))
        with pytest.raises(ProducerReused):
            world.run(world.flows.flush())
        assert world.server.log == ["theirs"]


class TestErrors:
    """A permanent error ends the producer and reaches every caller."""

    def failed(self, status: int, retry: Retry = PATIENT) -> tuple[World, Exception]:
        world = World(first, retry=retry)
        world.append("a")
        world.run(world.flows.flush())
        world.server.refuses = status
        for value in "bcdef":
            world.append(value)
        with pytest.raises(TailraceError) as caught:
            world.run(world.flows.flush())
        return world, caught.value

    def test_they_reach_every_caller(self) -> None:
        world, error = self.failed(404)
        assert isinstance(error, NotFound)
        assert world.errors == [error]
        assert _is_stored(world.futures[0])
        assert all(future.exception() is error for future in world.futures[1:])
        with pytest.raises(NotFound):
            world.append("g")
        with pytest.raises(NotFound):
            world.run(world.flows.close())
        left = [item for batch in world.queue.undelivered() for item in batch.items]
        assert left == [json.dumps(value).encode() for value in "bcdef"]

    def test_transient_failures_are_retried_a_limited_number_of_times(self) -> None:
        world, error = self.failed(503, Retry(attempts_max=3))
        assert isinstance(error, ServerFailed)
        assert world.errors == [error]

    def test_a_closed_stream(self) -> None:
        world = World(first)
        world.server.closed_by = ProducerHeaders("other", 0, 0)
        world.append("a")
        with pytest.raises(StreamClosed):
            world.run(world.flows.flush())

    def test_a_failing_header_callable(self) -> None:
        """A failing callable of the user ends the producer, which does not hang."""
        world = World(first)
        boom = ValueError("no token")

        def token() -> str:
            raise boom

        world.flows.options = Options({"authorization": token})
        world.append("a")
        with pytest.raises(ValueError, match="no token"):
            world.run(world.flows.flush())
        assert world.errors == [boom]

    def test_a_server_that_lost_batches_is_a_gap(self) -> None:
        """Its predecessors were acknowledged: continuing would leave a gap."""
        world = World(first)
        for value in "abc":
            world.append(value)
            world.run(world.flows.flush())
        world.server.producers["me"] = ProducerState(0, 0)
        world.append("d")
        with pytest.raises(TailraceError, match="409"):
            world.run(world.flows.flush())


class TestBatches:
    def test_a_batch_waits_for_more_until_linger_ends(self) -> None:
        world = World(first, linger_s=5.0, batch_count_max=10)
        for value in "abc":
            world.append(value)
        while not world.server.log:
            world.step()
        assert world.now == pytest.approx(5.0, abs=0.1)
        assert world.server.log == ["a", "b", "c"]

    @pytest.mark.parametrize("pause", [1.0, 100.0])
    def test_no_message_is_lost_during_a_long_linger(self, pause: float) -> None:
        """Also after a pause in which the idle workers have ended."""
        world = World(first, linger_s=20.0, batch_count_max=10)
        for value in "ab":
            world.append(value)
            while value not in world.server.log:
                world.step()
            end = world.now + pause
            while world.runs and world.now < end:
                world.step()
        assert world.server.log == ["a", "b"]

    def test_flush_does_not_linger(self) -> None:
        world = World(first, linger_s=5.0)
        world.append("a")
        world.run(world.flows.flush())
        assert world.now < 1

    def test_in_flight_max_limits_the_workers(self) -> None:
        world = World(first, batch_count_max=1, in_flight_max=3)
        for value in range(10):
            world.append(value)
        assert len(world.runs) <= 3
        world.run(world.flows.flush())

    def test_batch_bytes_max_limits_a_batch_of_several_messages(self) -> None:
        queue = queue_of(batch_bytes_max=10)
        for size in (4, 4, 4, 50, 1):
            queue.add(b"x" * size)
        taken = []
        queue.flush_waiters = 1
        while (batch := queue.take()) is not None:
            taken.append([len(item) for item in batch.items])
            queue.acknowledge(batch)
        assert taken == [[4, 4], [4], [50], [1]]

    def test_the_queue_has_room_by_bytes_and_count(self) -> None:
        queue = queue_of(queue_bytes_max=10, queue_count_max=3)
        assert queue.has_room(1000)
        queue.add(b"12345")
        assert queue.has_room(4)
        assert not queue.has_room(5)
        queue.add(b"")
        queue.add(b"")
        assert not queue.has_room(0)

    def test_limits_are_checked(self) -> None:
        for name, value in (("batch_bytes_max", 0), ("in_flight_max", 0), ("linger_s", -1.0)):
            with pytest.raises(ValueError, match=name):
                queue_of(**{name: value})


class TestDeliveries:
    """Each delivery is completed once, by the first worker."""

    def two(self) -> tuple[BatchQueue, list[Any]]:
        queue = queue_of(batch_count_max=1)
        queue.add(b"0")
        started = queue.take()
        assert started is not None
        queue.acknowledge(started)
        queue.add(b"1")
        queue.add(b"2")
        return queue, [queue.take(), queue.take()]

    def test_an_acknowledged_batch_does_not_fail_with_the_rest(self) -> None:
        queue, (one, other) = self.two()
        assert queue.settle(one)
        assert queue.fail(NotFound(404, URL)) == [other]
        queue.acknowledge(one)
        assert queue.undelivered() == [other]

    def test_a_failed_batch_is_not_acknowledged(self) -> None:
        queue, (one, other) = self.two()
        assert queue.fail(NotFound(404, URL)) == [one, other]
        assert not queue.settle(one)
        assert queue.fail(NotFound(404, URL)) is None

    @pytest.mark.parametrize("fails_first", [True, False])
    def test_only_one_worker_completes_a_delivery(self, fails_first: bool) -> None:
        """One worker has a response for its batch while another ends the producer."""
        world = World(first, batch_count_max=1)
        world.append("a")
        batch = world.queue.take()
        assert batch is not None
        done, error = Appended("1", False), NotFound(404, URL)
        if fails_first:
            world.flows.fail(error)
            world.flows._acknowledge(batch, done)
            assert batch.delivery.exception() is error
        else:
            assert world.queue.settle(batch)
            world.flows.fail(error)
            assert not batch.delivery.done()
        assert world.errors == [error]

    def test_a_batch_known_to_be_stored_does_not_fail(self) -> None:
        world = World(first, batch_count_max=1)
        world.append("0")
        started = world.queue.take()
        assert started is not None
        world.flows._acknowledge(started, Appended("1", False))
        world.append("1")
        world.append("2")
        one, other = world.queue.take(), world.queue.take()
        assert one is not None and other is not None
        world.flows._acknowledge(other, Appended("3", False))
        world.flows.fail(NotFound(404, URL))
        assert one.delivery.result().duplicate
        assert world.queue.undelivered() == []

    def test_a_later_acknowledgement_proves_that_a_batch_is_stored(self) -> None:
        """A server stores no gaps: the response to the second proves the first."""
        queue, (one, other) = self.two()
        queue.settle(other)
        queue.acknowledge(other)
        assert queue.is_stored(one)
        assert queue.undelivered() == []


class TestEncoding:
    def test_json_values_round_trip(self) -> None:
        nested: list[Any] = [[1, None], {"a": {"b": None}}, {1: 2}, {None: 1}]
        for value in (None, True, 1.5, 2**70, "é\n", *nested):
            assert json.loads(encode_json(value)) == json.loads(json.dumps(value))

    def test_nan_and_infinity_are_rejected(self) -> None:
        """msgspec alone would silently encode them as null."""
        nan, day = float("nan"), date(2026, 1, 2)
        values: list[Any] = [nan, {"a": [float("inf")]}, {"a": None, "b": -float("inf")}]
        for value in (*values, [day, nan], {day: nan}):
            with pytest.raises(ValueError, match="not JSON compliant"):
                encode_json(value)

    def test_other_types_are_rejected(self) -> None:
        values: list[Any] = [object(), b"{}", bytearray(b"{}"), {(1, 2): 3}]
        for value in values:
            with pytest.raises(TypeError):
                encode_json(value)

    def test_dates_are_encoded(self) -> None:
        assert encode_json([date(2026, 1, 2), None]) == b'["2026-01-02",null]'
