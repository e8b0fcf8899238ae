"""The rules of wakes, leases and retries, without an engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.protocol.offset import START, Offset
from tailrace.protocol.subscription import (
    BEFORE_FIRST,
    LinkedStream,
    Phase,
    SubscriptionConfig,
    SubscriptionState,
    checked,
    claim,
    deliver_again,
    due_at,
    end_wake,
    extend_lease,
    fail_delivery,
    fence,
    issue_wake,
    offset_text,
)
from tailrace.protocol.subscription_errors import (
    AlreadyClaimed,
    Fenced,
    InvalidSubscription,
    NoPendingWork,
)

HOOK = SubscriptionConfig(type="webhook", pattern="a", webhook_url="https://example.com/")
PULL = SubscriptionConfig(type="pull-wake", pattern="a", wake_stream="w")
NOW = 1_000_000


def subscription(config: SubscriptionConfig, pending: int = 1) -> SubscriptionState:
    return SubscriptionState(
        id=1, config=config, digest=config.digest(), owner=None, created_at=NOW, pending=pending
    )


class TestConfiguration:
    @pytest.mark.parametrize(
        "changes",
        [
            {"type": "push"},
            {"pattern": None},
            {"pattern": "/"},
            {"streams": ("/",)},
            {"wake_stream": None},
            {"wake_stream": "/"},
            {"webhook_url": "https://example.com/"},
            {"lease_ttl_ms": 999},
            {"description": "é" * 2049},
            {"pattern": "a" * 4097},
            {"lease_ttl_ms": 600_001},
            {"type": "webhook"},
            {"type": "webhook", "wake_stream": None},
        ],
    )
    def test_what_a_subscription_cannot_be(self, changes: dict[str, object]) -> None:
        with pytest.raises(InvalidSubscription):
            checked(replace(PULL, **changes))

    def test_sameness_ignores_order_repeats_and_surrounding_slashes(self) -> None:
        one = checked(replace(PULL, pattern="/a/*/", streams=("b", "/a", "b/")))
        two = checked(replace(PULL, pattern="a/*", streams=("a", "b")))
        assert one == two
        assert one.digest() == two.digest()

    @pytest.mark.parametrize(
        "changes",
        [
            {"pattern": "b"},
            {"pattern": None, "streams": ("a",)},
            {"streams": ("a",)},
            {"wake_stream": "v"},
            {"lease_ttl_ms": 1000},
            {"description": "text"},
        ],
    )
    def test_every_field_counts(self, changes: dict[str, object]) -> None:
        assert checked(replace(PULL, **changes)).digest() != checked(PULL).digest()


class TestWakes:
    def test_the_lease_of_a_webhook_begins_with_the_wake(self) -> None:
        state = issue_wake(subscription(HOOK), "w1", NOW)
        assert (state.generation, state.wake_id, state.phase) == (1, "w1", Phase.WAKING)
        assert state.lease_until == NOW + 30_000
        fence(state, "w1", 1)

    def test_the_lease_of_a_pull_wake_begins_with_the_claim(self) -> None:
        state = issue_wake(subscription(PULL), "w1", NOW)
        assert state.lease_until is None
        with pytest.raises(Fenced):
            fence(state, "w1", 1)
        state = claim(state, "worker", NOW + 5)
        assert (state.lease_until, state.holder) == (NOW + 30_005, "worker")
        fence(state, "w1", 1)

    def test_what_cannot_be_claimed(self) -> None:
        with pytest.raises(InvalidSubscription):
            claim(issue_wake(subscription(HOOK), "w1", NOW), "worker", NOW)
        with pytest.raises(NoPendingWork):
            claim(subscription(PULL, 0), "worker", NOW)
        claimed = claim(issue_wake(subscription(PULL), "w1", NOW), "worker", NOW)
        with pytest.raises(AlreadyClaimed) as refusal:
            claim(claimed, "other", NOW)
        assert (refusal.value.current_holder, refusal.value.generation) == ("worker", 1)

    def test_a_wake_that_ended_is_fenced_for_ever(self) -> None:
        state = issue_wake(subscription(HOOK), "w1", NOW)
        state = end_wake(state)
        with pytest.raises(Fenced):
            fence(state, "w1", 1)
        with pytest.raises(Fenced):
            fence(state, "", 1)
        state = issue_wake(state, "w2", NOW)
        assert state.generation == 2
        for wake_id, generation in (("w1", 1), ("w1", 2), ("w2", 1)):
            with pytest.raises(Fenced):
                fence(state, wake_id, generation)

    @given(st.floats(-1, 1), st.integers(0, 40))
    def test_retries_are_after_one_second_doubling_to_sixty(
        self, jitter: float, attempts: int
    ) -> None:
        state = replace(issue_wake(subscription(HOOK), "w1", NOW), attempts=attempts)
        failed = fail_delivery(state, "error", NOW, jitter)
        assert failed.retry_at is not None
        delay = min(1000 * 2**attempts, 60_000)
        assert 0.8 * delay - 1 <= failed.retry_at - NOW <= 1.2 * delay + 1
        assert (failed.lease_until, failed.status) == (None, "failed")
        # A worker that received the wake may still call back.
        fence(failed, "w1", 1)
        assert extend_lease(failed, NOW).status == "active"
        again = deliver_again(failed, NOW + 7)
        assert (again.retry_at, again.lease_until, again.status) == (None, NOW + 30_007, "failed")

    def test_an_error_is_cut(self) -> None:
        state = issue_wake(subscription(HOOK), "w1", NOW)
        assert len(fail_delivery(state, "x" * 10_000, NOW, 0).last_error or "") == 500

    def test_what_is_due_is_never_far_away(self) -> None:
        """A clock that is set back must not stop a wake."""
        state = issue_wake(subscription(HOOK), "w1", NOW)
        assert due_at(state, NOW + 10) == NOW + 30_000
        assert due_at(state, NOW - 10**9) == NOW - 10**9 + 30_000
        failed = fail_delivery(state, "error", NOW, 0)
        assert due_at(failed, NOW) == NOW + 1000
        assert due_at(failed, 0) == 72_000
        assert due_at(subscription(HOOK), NOW) is None


class TestLinkedStreams:
    @pytest.mark.parametrize(
        ("acked", "tail", "expected"),
        [
            (BEFORE_FIRST, START, False),
            (BEFORE_FIRST, Offset(1, 1), True),
            (START, START, False),
            (START, Offset(1, 1), True),
            (Offset(1, 1), Offset(1, 1), False),
        ],
    )
    def test_work_is_pending_when_the_tail_is_past_the_cursor(
        self, acked: Offset, tail: Offset, expected: bool
    ) -> None:
        assert LinkedStream("a", False, acked, tail, 1).has_pending is expected

    def test_the_cursor_before_the_first_append_is_minus_one(self) -> None:
        assert offset_text(BEFORE_FIRST) == "-1"
        assert offset_text(START) == START.token()
