"""Subscriptions over every store: links, wakes, leases, retries, fencing (today.md §3)."""

import json

import pytest

from tailrace.protocol.errors import BucketNotFound, Refusal
from tailrace.protocol.offset import START
from tailrace.protocol.state import Create, Delete
from tailrace.protocol.subscription import Phase
from tailrace.protocol.subscription_errors import (
    AlreadyClaimed,
    Fenced,
    InvalidAck,
    InvalidSubscription,
    NoPendingWork,
    SubscriptionExists,
    SubscriptionNotFound,
)
from tests.contract.harness import World
from tests.contract.subscribing import Subscriber, pull, webhook

ZERO = START.token()


@pytest.fixture
def subscriber(world: World) -> Subscriber:
    return Subscriber(world)


def events(subscriber: Subscriber, path: str = "wakes") -> list[dict[str, object]]:
    found, _ = subscriber.world.read(subscriber.key(path))
    return list(json.loads(b"[" + found.rstrip(b",") + b"]"))


class TestConfiguration:
    def test_the_same_configuration_is_confirmed_and_another_one_refused(
        self, subscriber: Subscriber
    ) -> None:
        assert subscriber.create("s", pull(streams=("a", "b"))).created
        assert not subscriber.create("s", pull("/e/*/", streams=("b", "/a/", "b"))).created
        with pytest.raises(SubscriptionExists):
            subscriber.create("s", pull(streams=("a",)))
        assert sorted(subscriber.cursors("s")) == ["a", "b"]

    def test_a_subscription_needs_its_bucket_and_goes_with_it(self, world: World) -> None:
        subscriber = Subscriber(world, b"bucket")
        with pytest.raises(BucketNotFound):
            subscriber.create("s", pull())
        replies: list[object] = []

        async def both() -> None:
            world.engine.buckets.create(b"bucket", replies.append)

        world.run(both())
        world.settle()
        subscriber.create("s", pull("*"))
        Subscriber(world).create("s", pull("*"))

        async def delete() -> None:
            world.engine.buckets.delete(b"bucket", replies.append)

        world.run(delete())
        world.settle()
        assert not any(isinstance(reply, Refusal) for reply in replies)
        with pytest.raises(SubscriptionNotFound):
            subscriber.view("s")
        world.reopen()
        with pytest.raises(SubscriptionNotFound):
            subscriber.view("s")
        assert Subscriber(world).view("s")

    def test_deletion_forgets_everything(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull(streams=("a",)))
        subscriber.append("e/1")
        wake = subscriber.claim("s")
        assert subscriber.delete("s")
        assert not subscriber.delete("s")
        for call in (
            lambda: subscriber.view("s"),
            lambda: subscriber.claim("s"),
            lambda: subscriber.ack("s", wake, done=True),
            lambda: subscriber.release("s", wake),
            lambda: subscriber.link("s", "x"),
            lambda: subscriber.unlink("s", "x"),
        ):
            with pytest.raises(SubscriptionNotFound):
                call()
        subscriber.world.reopen()
        assert list(subscriber.world.store.links()) == []
        # The same id again is another subscription: the old wake is fenced.
        subscriber.create("s", pull())
        subscriber.append("e/1")
        subscriber.claim("s")
        with pytest.raises(Fenced):
            subscriber.ack("s", wake, done=True)

    def test_pages_are_by_id_and_of_one_scope(self, subscriber: Subscriber) -> None:
        for name in ("b", "a", "c"):
            subscriber.create(name, pull())
        subscriptions = subscriber.world.engine.subscriptions
        page, more = subscriptions.page(b"", "", 2)
        assert ([name for name, _ in page], more) == (["a", "b"], True)
        page, more = subscriptions.page(b"", "b", 2)
        assert ([name for name, _ in page], more) == (["c"], False)
        assert subscriptions.page(b"bucket", "", 2) == ([], False)
        assert subscriptions.scopes() == [b""]


class TestLinks:
    def test_existing_streams_are_linked_at_their_tail(self, subscriber: Subscriber) -> None:
        tail = subscriber.append("e/1")
        other = subscriber.append("other")
        view = subscriber.create("s", pull(streams=("other", "none")))
        assert {item.path: (item.link_type, item.acked_offset) for item in view.streams} == {
            "e/1": ("glob", tail),
            "other": ("explicit", other),
            "none": ("explicit", ZERO),
        }
        assert view.state.phase is Phase.IDLE

    def test_a_stream_that_begins_to_match_later_is_linked_before_its_first_append(
        self, subscriber: Subscriber
    ) -> None:
        subscriber.create("s", pull(streams=("later",)))
        subscriber.world.create(subscriber.key("e/1"))
        subscriber.world.create(subscriber.key("later"))
        assert subscriber.cursors("s") == {"e/1": "-1", "later": ZERO}
        assert subscriber.state("s").phase is Phase.IDLE
        tail = subscriber.append("e/1")
        subscriber.append("later")
        streams = {item.path: item for item in subscriber.claim("s").streams}
        assert (streams["e/1"].acked_offset, streams["e/1"].tail_offset) == ("-1", tail)
        assert streams["later"].acked_offset == ZERO
        assert all(item.has_pending for item in streams.values())

    def test_an_empty_stream_that_is_older_is_linked_at_zero(self, subscriber: Subscriber) -> None:
        subscriber.world.create(subscriber.key("e/1"))
        subscriber.create("s", pull())
        assert subscriber.cursors("s") == {"e/1": ZERO}

    def test_the_cursor_of_an_empty_stream_does_not_depend_on_an_explicit_link(
        self, subscriber: Subscriber
    ) -> None:
        subscriber.create("s", pull())
        subscriber.world.create(subscriber.key("e/1"))
        for change in (subscriber.link, subscriber.unlink):
            change("s", "e/1")
            assert subscriber.cursors("s") == {"e/1": "-1"}

    def test_a_put_with_a_body_counts_as_an_append(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull())
        subscriber.world.create(subscriber.key("e/1"), body=b"x")
        assert subscriber.claim("s").streams[0].acked_offset == "-1"

    def test_an_explicit_link_keeps_the_cursor_of_the_pattern(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull())
        subscriber.append("e/1")
        subscriber.link("s", "e/1", "x")
        assert subscriber.cursors("s") == {"e/1": "-1", "x": ZERO}
        assert subscriber.view("s").streams[0].link_type == "explicit"
        subscriber.unlink("s", "e/1")
        subscriber.unlink("s", "x")
        subscriber.unlink("s", "never")
        subscriber.world.reopen()
        assert subscriber.cursors("s") == {"e/1": "-1"}
        assert subscriber.view("s").streams[0].link_type == "glob"

    def test_removing_the_only_link_drops_its_work(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull(None, streams=("a",)))
        subscriber.append("a")
        assert subscriber.state("s").phase is Phase.WAKING
        subscriber.unlink("s", "a")
        assert (subscriber.state("s").phase, subscriber.state("s").pending) == (Phase.IDLE, 0)
        with pytest.raises(NoPendingWork):
            subscriber.claim("s")
        subscriber.append("a")
        assert subscriber.state("s").phase is Phase.IDLE

    def test_deletion_of_a_stream_drops_its_links(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull(streams=("a",)))
        subscriber.append("a")
        subscriber.append("e/1")
        subscriber.world.delete(subscriber.key("a"))
        subscriber.world.delete(subscriber.key("e/1"))
        assert subscriber.cursors("s") == {}
        assert subscriber.state("s").phase is Phase.IDLE
        subscriber.append("a")
        assert subscriber.state("s").pending == 0
        # A stream that is created again is a new one.
        subscriber.append("e/1")
        assert subscriber.claim("s").streams[0].acked_offset == "-1"

    def test_expiry_of_a_stream_drops_its_links(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull())
        subscriber.world.create(subscriber.key("e/1"), body=b"x", ttl_s=1)
        assert subscriber.state("s").pending == 1
        subscriber.world.now += 2000
        subscriber.world.sweep()
        assert subscriber.state("s").pending == 0

    def test_a_close_is_no_work(self, subscriber: Subscriber) -> None:
        subscriber.append("e/1")
        subscriber.create("s", pull())
        subscriber.world.append(subscriber.key("e/1"), b"", content_type=None, closes=True)
        assert subscriber.state("s").pending == 0

    def test_what_is_listed_is_bounded(
        self, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tailrace.engine.subscriptions import streams as subscription_streams

        for at in range(6):
            subscriber.append(f"e/{at}")
        view = subscriber.create("s", pull())
        assert (len(view.streams), view.is_cut) == (6, False)
        subscriber.append("e/5")
        monkeypatch.setattr(subscription_streams, "LISTED_MAX", 3)
        view = subscriber.view("s")
        assert ([item.path for item in view.streams], view.is_cut) == (["e/5", "e/0", "e/1"], True)
        monkeypatch.setattr(subscription_streams, "NAMES_SCANNED_MAX", 1)
        assert subscriber.view("s").is_cut

    def test_what_a_request_can_link_is_bounded(
        self, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tailrace.engine.subscriptions import subscriptions

        subscriber.create("s", pull())
        monkeypatch.setattr(subscriptions, "REQUEST_STREAMS_MAX", 2)
        monkeypatch.setattr(subscriptions, "LINKS_MAX", 3)
        subscriber.link("s", "a", "b")
        for paths in (("c", "d"), ("/",), ("c", "d", "e")):
            with pytest.raises(InvalidSubscription):
                subscriber.link("s", *paths)
        with pytest.raises(InvalidSubscription):
            subscriber.create("t", pull(streams=("a", "b", "c")))
        subscriber.append("e/1")
        claim = subscriber.claim("s")
        with pytest.raises(InvalidSubscription):
            subscriber.ack("s", claim, [("e/1", ZERO)] * 3)


class TestPullWake:
    def test_an_append_writes_one_event_in_its_own_commit(self, subscriber: Subscriber) -> None:
        subscriber.world.create(subscriber.key("wakes"), content_type="application/json")
        subscriber.create("s", pull())
        before = subscriber.world.engine.commit.batches
        subscriber.append("e/1")
        assert subscriber.world.engine.commit.batches == before + 1
        subscriber.append("e/1")
        subscriber.append("e/2")
        assert events(subscriber) == [
            {
                "type": "wake",
                "subscription_id": "s",
                "stream": "e/1",
                "generation": 1,
                "ts": subscriber.world.now,
            }
        ]

    def test_claim_ack_done(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull(lease_ttl_ms=5000))
        with pytest.raises(NoPendingWork):
            subscriber.claim("s")
        tail = subscriber.append("e/1")
        claim = subscriber.claim("s", "worker-1")
        assert (claim.generation, claim.lease_ttl_ms) == (1, 5000)
        with pytest.raises(AlreadyClaimed) as claimed:
            subscriber.claim("s", "worker-2")
        assert (claimed.value.current_holder, claimed.value.generation) == ("worker-1", 1)
        assert not subscriber.ack("s", claim, [("/e/1/", tail)], done=True)
        assert subscriber.cursors("s") == {"e/1": tail}
        with pytest.raises(Fenced):
            subscriber.ack("s", claim, [("e/1", tail)], done=True)
        with pytest.raises(Fenced):
            subscriber.release("s", claim)

    def test_work_that_comes_during_a_lease_wakes_again_after_it(
        self, subscriber: Subscriber
    ) -> None:
        subscriber.world.create(subscriber.key("wakes"), content_type="application/json")
        subscriber.create("s", pull())
        tail = subscriber.append("e/1")
        claim = subscriber.claim("s")
        subscriber.append("e/2")
        assert len(events(subscriber)) == 1
        assert subscriber.ack("s", claim, [("e/1", tail)], done=True)
        assert [(item["stream"], item["generation"]) for item in events(subscriber)] == [
            ("e/1", 1),
            ("e/2", 2),
        ]
        assert subscriber.claim("s").generation == 2

    def test_release_acknowledges_nothing_and_wakes_again(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull())
        subscriber.append("e/1")
        claim = subscriber.claim("s")
        subscriber.release("s", claim)
        again = subscriber.claim("s")
        assert (again.generation, again.streams) == (2, claim.streams)
        assert again.wake_id != claim.wake_id

    def test_an_ack_extends_the_lease_and_expiry_ends_it(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull(lease_ttl_ms=1000))
        subscriber.append("e/1")
        claim = subscriber.claim("s")
        subscriber.tick(900)
        assert not subscriber.ack("s", claim)
        subscriber.tick(900)
        assert subscriber.state("s").holder == "w"
        subscriber.tick(100)
        state = subscriber.state("s")
        assert (state.phase, state.generation, state.holder) == (Phase.WAKING, 2, None)
        with pytest.raises(Fenced):
            subscriber.ack("s", claim, done=True)

    def test_expiry_is_seen_before_the_timer_runs(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull(lease_ttl_ms=1000))
        subscriber.append("e/1")
        claim = subscriber.claim("s", "a")
        subscriber.world.now += 1000
        with pytest.raises(Fenced):
            subscriber.ack("s", claim)
        subscriber.world.now += 5000
        assert subscriber.claim("s", "b").generation == 2

    @pytest.mark.parametrize("closed", [False, True])
    def test_without_a_wake_stream_there_is_no_event_and_claims_work(
        self, subscriber: Subscriber, closed: bool
    ) -> None:
        if closed:
            subscriber.world.create(subscriber.key("wakes"), closed=True)
        subscriber.create("s", pull())
        subscriber.append("e/1")
        assert subscriber.claim("s").generation == 1

    def test_subscriptions_that_watch_each_others_wakes_end(self, subscriber: Subscriber) -> None:
        for name in ("a", "b"):
            subscriber.world.create(subscriber.key(f"w/{name}"), content_type="application/json")
        subscriber.create("a", pull("**", wake_stream="w/a"))
        subscriber.create("b", pull("w/*", wake_stream="w/b"))
        subscriber.append("x")
        assert [item["stream"] for item in events(subscriber, "w/a")] == ["x"]
        assert [item["stream"] for item in events(subscriber, "w/b")] == ["w/a"]
        assert subscriber.state("a").pending == 3
        assert subscriber.state("b").pending == 2

    def test_the_reply_to_an_append_is_its_own_tail(self, subscriber: Subscriber) -> None:
        """A wake stream that wakes itself gets the event after the append."""
        subscriber.world.create(subscriber.key("w"))
        subscriber.create("a", pull("w", wake_stream="w"))
        assert subscriber.world.append(subscriber.key("w"), b"abc").tail.byte == 3
        assert subscriber.world.find(subscriber.key("w")).tail.message == 2


class TestAcks:
    @pytest.fixture
    def tails(self, subscriber: Subscriber) -> list[str]:
        subscriber.create("s", pull(streams=("none",)))
        return [subscriber.append("e/1", body) for body in (b"aa", b"bb", b"cc")]

    def test_cursors_move_forward_only(self, subscriber: Subscriber, tails: list[str]) -> None:
        claim = subscriber.claim("s")
        subscriber.ack("s", claim, [("e/1", tails[1])])
        assert subscriber.cursors("s")["e/1"] == tails[1]
        with pytest.raises(InvalidAck):
            subscriber.ack("s", claim, [("e/1", tails[0])])
        subscriber.ack("s", claim, [("e/1", tails[1]), ("e/1", tails[2]), ("none", ZERO)])
        with pytest.raises(InvalidAck):
            subscriber.ack("s", claim, [("e/1", tails[1])])
        subscriber.ack("s", claim, [("e/1", tails[2])])
        subscriber.world.reopen()
        assert subscriber.cursors("s") == {"e/1": tails[2], "none": ZERO}
        assert subscriber.state("s").pending == 0

    @pytest.mark.parametrize(
        ("path", "offset"),
        [
            ("e/1", "-1"),
            ("e/1", "now"),
            ("e/1", "0000000000000009_0000000000000009"),
            ("e/1", "0000000000000001_0000000000000003"),
            ("e/1", "0000000000000001_0000000000000001"),
            ("e/2", ZERO),
            ("other", ZERO),
            ("none", "0000000000000001_0000000000000001"),
            ("", ZERO),
        ],
    )
    def test_a_bad_ack_applies_none(
        self, subscriber: Subscriber, tails: list[str], path: str, offset: str
    ) -> None:
        claim = subscriber.claim("s")
        with pytest.raises(InvalidAck):
            subscriber.ack("s", claim, [("e/1", tails[0]), (path, offset)], done=True)
        assert subscriber.cursors("s")["e/1"] == "-1"
        # The lease goes on.
        assert not subscriber.ack("s", claim, [("e/1", tails[2])], done=True)

    def test_another_wake_or_generation_is_fenced(
        self, subscriber: Subscriber, tails: list[str]
    ) -> None:
        claim = subscriber.claim("s")
        for wrong in (claim._replace(generation=2), claim._replace(wake_id="wake_0")):
            with pytest.raises(Fenced):
                subscriber.ack("s", wrong, [("e/1", tails[2])], done=True)
        assert subscriber.cursors("s")["e/1"] == "-1"

    def test_an_unclaimed_wake_cannot_be_acknowledged(
        self, subscriber: Subscriber, tails: list[str]
    ) -> None:
        claim = subscriber.claim("s")
        subscriber.release("s", claim)
        state = subscriber.state("s")
        claim = claim._replace(wake_id=state.wake_id, generation=state.generation)
        with pytest.raises(Fenced):
            subscriber.ack("s", claim, done=True)


class TestWebhook:
    @pytest.fixture
    def hooked(self, subscriber: Subscriber) -> Subscriber:
        subscriber.start()
        subscriber.create("s", webhook(lease_ttl_ms=1000))
        return subscriber

    def test_a_wake_is_delivered_once_with_its_streams(self, hooked: Subscriber) -> None:
        tail = hooked.append("e/1")
        hooked.append("e/1")
        (delivery,) = hooked.deliveries
        assert (delivery.id, delivery.state.generation) == ("s", 1)
        (stream,) = delivery.streams
        assert (stream.path, stream.acked_offset, stream.tail_offset) == ("e/1", "-1", tail)
        with pytest.raises(InvalidSubscription):
            hooked.claim("s")

    def test_done_acknowledges_what_was_told_and_no_more(self, hooked: Subscriber) -> None:
        tail = hooked.append("e/1")
        more = hooked.append("e/1")
        hooked.delivered(hooked.deliveries[0], done=True)
        assert [item.state.generation for item in hooked.deliveries] == [1, 2]
        (stream,) = hooked.deliveries[1].streams
        assert (stream.acked_offset, stream.tail_offset) == (tail, more)
        hooked.delivered(hooked.deliveries[1], done=True)
        assert hooked.state("s").phase is Phase.IDLE
        assert len(hooked.deliveries) == 2

    def test_done_does_not_acknowledge_a_stream_that_was_created_again(
        self, hooked: Subscriber
    ) -> None:
        hooked.append("e/1", b"long content")
        hooked.world.delete(hooked.key("e/1"))
        hooked.append("e/1", b"x")
        hooked.delivered(hooked.deliveries[0], done=True)
        assert hooked.deliveries[1].streams[0].acked_offset == "-1"

    def test_another_success_lets_the_lease_run(self, hooked: Subscriber) -> None:
        tail = hooked.append("e/1")
        (delivery,) = hooked.deliveries
        hooked.delivered(delivery, done=False)
        assert not hooked.ack("s", delivery, [("e/1", tail)], done=True)
        hooked.append("e/1")
        hooked.delivered(hooked.deliveries[1], done=False)
        hooked.tick(1000)
        assert [item.state.generation for item in hooked.deliveries] == [1, 2, 3]

    def test_a_callback_may_come_before_the_answer(self, hooked: Subscriber) -> None:
        tail = hooked.append("e/1")
        (delivery,) = hooked.deliveries
        assert not hooked.ack("s", delivery, [("e/1", tail)])
        hooked.failed(delivery)
        assert hooked.state("s").status == "active"
        assert not hooked.ack("s", delivery, done=True)
        hooked.delivered(delivery, done=True)
        assert hooked.state("s").phase is Phase.IDLE

    def test_done_ends_a_wake_whose_worker_called_back_before(self, hooked: Subscriber) -> None:
        hooked.append("e/1")
        (delivery,) = hooked.deliveries
        hooked.ack("s", delivery)
        hooked.delivered(delivery, done=True)
        assert (hooked.state("s").phase, hooked.state("s").pending) == (Phase.IDLE, 0)
        hooked.tick(100_000)
        assert len(hooked.deliveries) == 1

    def test_failures_are_retried_ever_later_with_the_same_wake(self, hooked: Subscriber) -> None:
        hooked.append("e/1")
        delays = []
        for attempt in range(9):
            hooked.failed(hooked.deliveries[-1], f"error {attempt}")
            state = hooked.state("s")
            assert (state.status, state.last_error) == ("failed", f"error {attempt}")
            assert state.retry_at is not None
            delays.append(state.retry_at - hooked.world.now)
            hooked.tick(delays[-1] - 1)
            assert len(hooked.deliveries) == attempt + 1
            hooked.tick(1)
            assert len(hooked.deliveries) == attempt + 2
        for delay, base in zip(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True):
            assert 800 * base <= delay <= 1200 * base
        assert {item.state.wake_id for item in hooked.deliveries} == {state.wake_id}
        hooked.delivered(hooked.deliveries[-1], done=False)
        state = hooked.state("s")
        assert (state.status, state.attempts, state.last_error) == ("active", 0, None)

    def test_the_schedule_of_retries_survives_a_restart(self, hooked: Subscriber) -> None:
        hooked.append("e/1")
        hooked.failed(hooked.deliveries[0])
        hooked.tick(2000)
        hooked.failed(hooked.deliveries[1])
        before = hooked.state("s")
        assert before.retry_at is not None
        hooked.world.reopen()
        hooked.start()
        assert hooked.state("s") == before
        assert len(hooked.deliveries) == 2
        hooked.tick(before.retry_at - hooked.world.now)
        assert len(hooked.deliveries) == 3

    def test_a_wake_that_was_being_delivered_is_delivered_after_a_restart(
        self, hooked: Subscriber
    ) -> None:
        if hooked.world.kind == "memory":
            pytest.skip("it has no restarts")
        hooked.append("e/1")
        hooked.world.reopen()
        hooked.start()
        assert [item.state.generation for item in hooked.deliveries] == [1, 1]
        hooked.world.now += 5000
        hooked.world.reopen()
        hooked.start()
        assert [item.state.generation for item in hooked.deliveries] == [1, 1, 2]

    def test_a_webhook_that_hangs_is_fenced_and_tried_again_later(self, hooked: Subscriber) -> None:
        hooked.append("e/1")
        hooked.tick(1000)
        state = hooked.state("s")
        assert (state.generation, state.status) == (2, "failed")
        assert len(hooked.deliveries) == 1
        hooked.tick(1200)
        assert len(hooked.deliveries) == 2
        hooked.delivered(hooked.deliveries[0], done=True)
        assert hooked.state("s").generation == 2

    def test_a_retry_without_work_is_not_made(self, hooked: Subscriber) -> None:
        hooked.append("e/1")
        hooked.failed(hooked.deliveries[0])
        hooked.world.delete(hooked.key("e/1"))
        assert hooked.state("s").phase is Phase.IDLE
        assert hooked.state("s").status == "active"
        hooked.tick(100_000)
        assert len(hooked.deliveries) == 1

    def test_a_clock_that_is_set_back_does_not_stop_a_wake(self, hooked: Subscriber) -> None:
        hooked.append("e/1")
        hooked.delivered(hooked.deliveries[0], done=False)
        hooked.tick(10)
        hooked.tick(-86_400_000)
        hooked.tick(1000)
        assert [item.state.generation for item in hooked.deliveries] == [1, 2]

    def test_appends_do_not_postpone_a_lease_after_the_clock_was_set_back(
        self, hooked: Subscriber
    ) -> None:
        hooked.append("e/0")
        hooked.delivered(hooked.deliveries[0], done=False)
        hooked.tick(10)
        hooked.tick(-86_400_000)
        for number in range(1, 5):
            hooked.tick(500)
            hooked.append(f"e/{number}")
        assert len(hooked.deliveries) > 1

    def test_the_timer_runs_by_itself(self, hooked: Subscriber) -> None:
        hooked.append("e/1")
        hooked.delivered(hooked.deliveries[0], done=False)
        hooked.world.now += 1000
        hooked.world.until(lambda: len(hooked.deliveries) == 2)


def test_a_wake_that_ended_in_the_batch_that_issued_it_has_no_event(
    subscriber: Subscriber,
) -> None:
    world = subscriber.world
    world.create(subscriber.key("wakes"), content_type="application/json")
    subscriber.create("s", pull("e/*"))

    async def in_one_turn() -> None:
        engine = world.engine
        for path, deletes in (("e/1", True), ("e/2", False)):
            created = Create(id=engine.new_id(), content_type="text/plain", body=b"x")
            engine.submit(subscriber.key(path), created, lambda _: None)
            if deletes:
                engine.submit(subscriber.key(path), Delete(), lambda _: None)

    world.run(in_one_turn())
    subscriber.settle()
    assert [(event["stream"], event["generation"]) for event in events(subscriber)] == [("e/2", 2)]


class TestRights:
    def test_streams_that_the_owner_may_not_read_neither_wake_nor_are_told(
        self, subscriber: Subscriber
    ) -> None:
        allowed = {b"\0e/1"}
        asked: list[bytes | None] = []

        def readable(owner: bytes | None, key: bytes) -> bool:
            asked.append(owner)
            return key in allowed

        subscriptions = subscriber.world.engine.subscriptions
        subscriptions.set_readable(readable)
        subscriber.create("s", pull(), b"me")
        subscriber.append("e/2")
        assert subscriber.state("s").phase is Phase.IDLE
        tail = subscriber.append("e/1")
        assert set(asked) == {b"me"}
        claim = subscriber.claim("s")
        assert [item.path for item in claim.streams] == ["e/1"]
        with pytest.raises(InvalidAck):
            subscriber.ack("s", claim, [("e/2", tail)])
        # The right is taken away: the work is no longer pending.
        allowed.clear()
        subscriptions.set_readable(readable)
        subscriber.tick(30_000)
        assert subscriber.state("s").phase is Phase.IDLE
        assert subscriber.cursors("s") == {}
        allowed.update((b"\0e/1", b"\0e/2"))
        subscriptions.set_readable(readable)
        subscriber.append("e/2")
        assert [item.path for item in subscriber.claim("s").streams] == ["e/2", "e/1"]

    def test_a_confirmation_by_another_owner_replaces_it(self, subscriber: Subscriber) -> None:
        def readable(owner: bytes | None, key: bytes) -> bool:
            return owner == b"reader"

        subscriber.world.engine.subscriptions.set_readable(readable)
        subscriber.create("s", pull(), b"reader")
        subscriber.append("e/1")
        assert not subscriber.create("s", pull(), b"other").created
        subscriber.world.reopen()
        subscriber.world.engine.subscriptions.set_readable(readable)
        assert subscriber.state("s").owner == b"other"
        with pytest.raises(NoPendingWork):
            subscriber.claim("s")

    def test_a_failure_of_the_check_fails_no_append(self, subscriber: Subscriber) -> None:
        def readable(owner: bytes | None, key: bytes) -> bool:
            raise RuntimeError

        subscriber.world.engine.subscriptions.set_readable(readable)
        subscriber.create("s", pull())
        subscriber.append("e/1")
        assert subscriber.state("s").phase is Phase.IDLE

    def test_a_failure_of_the_check_drops_no_work(self, subscriber: Subscriber) -> None:
        def unknown(owner: bytes | None, key: bytes) -> bool:
            raise RuntimeError

        subscriptions = subscriber.world.engine.subscriptions
        subscriber.create("s", pull())
        subscriber.append("e/1")
        claim = subscriber.claim("s")
        subscriptions.set_readable(unknown)
        subscriber.release("s", claim)
        assert subscriber.state("s").pending == 1
        subscriptions.set_readable(lambda owner, key: True)
        assert [item.path for item in subscriber.claim("s").streams] == ["e/1"]


class TestDurability:
    def test_everything_survives_a_restart(self, subscriber: Subscriber) -> None:
        subscriber.create("s", pull(streams=("a",), description="text"), b"owner")
        tail = subscriber.append("e/1")
        subscriber.append("e/2")
        claim = subscriber.claim("s")
        subscriber.ack("s", claim, [("e/1", tail)])
        before = subscriber.view("s")
        subscriber.world.reopen()
        assert subscriber.view("s") == before
        assert subscriber.state("s").pending == 1
        assert not subscriber.ack("s", claim, [("e/2", tail)], done=True)

    def test_secrets_are_made_once_and_kept(self, subscriber: Subscriber) -> None:
        world = subscriber.world
        first = world.run(world.engine.subscriptions.secret("hmac"))
        assert len(first) == 32
        assert world.run(world.engine.subscriptions.secret("hmac")) == first
        assert world.run(world.engine.subscriptions.secret("seed")) != first
        world.reopen()
        assert world.run(world.engine.subscriptions.secret("hmac")) == first
        subscriber.create("s", pull())
        world.reopen()
        assert len(world.engine.subscriptions.page(b"", "", 9)[0]) == 1
