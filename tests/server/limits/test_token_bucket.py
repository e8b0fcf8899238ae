"""Token buckets: never more than the rate and the burst, and no client is locked out."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.server.guard.limits.token_bucket import TokenBucket, retry_after_s

S = 1_000_000_000

PER_S = st.one_of(
    st.integers(1, 10**9).map(float), st.sampled_from([0.001, 0.25, 0.5, 1.5, 3.3, 1e12])
)
BURSTS = st.one_of(st.integers(1, 20), st.integers(1, 10**8))
GAPS = st.one_of(st.integers(0, 10), st.integers(0, 10 * S), st.integers(0, 10**7))
TAKES = st.lists(st.tuples(GAPS, st.one_of(st.integers(1, 5), st.integers(1, 10**8))), max_size=60)


@given(per_s=PER_S, burst=BURSTS, takes=TAKES)
def test_in_any_interval_at_most_the_rate_and_one_burst_pass(
    per_s: float, burst: int, takes: list[tuple[int, int]]
) -> None:
    """
    Rule 1, and rule 2 for what is larger than the burst.

    Method: arbitrary takes at arbitrary times. Between any two that passed, the sum is at most
    rate * time + burst, or + the largest take if that is larger than the burst.
    """
    bucket = TokenBucket(per_s, burst)
    per_s = bucket.milli_per_s / 1000
    now = 10**15
    passed: list[tuple[int, int]] = []
    for gap, count in takes:
        now += gap
        wait_ns = bucket.take(count, now)
        if not wait_ns:
            passed.append((now, count))
    for first in range(len(passed)):
        total = 0
        for at, count in passed[first:]:
            total += count
            elapsed_ns = at - passed[first][0]
            largest = max(burst, *(item[1] for item in passed[first:]), 0)
            # Exactly, in whole numbers of 0.001 units per second and of nanoseconds.
            assert total * 1000 * S <= elapsed_ns * bucket.milli_per_s + largest * 1000 * S


@given(per_s=PER_S, burst=BURSTS, takes=TAKES, count=st.integers(1, 10**9))
def test_a_client_that_waits_for_retry_after_passes(
    per_s: float, burst: int, takes: list[tuple[int, int]], count: int
) -> None:
    """Rules 2 and 3, for any takes before and any size."""
    bucket = TokenBucket(per_s, burst)
    now = 10**15
    for gap, taken in takes:
        now += gap
        bucket.take(taken, now)
    wait_ns = bucket.take(count, now, check_only=True)
    assert bucket.take(count, now + retry_after_s(wait_ns) * S, check_only=True) == 0
    assert bucket.take(count, now + wait_ns) == 0


@given(per_s=PER_S, burst=BURSTS, takes=TAKES, count=st.integers(1, 10**9))
def test_a_refusal_or_a_check_takes_nothing(
    per_s: float, burst: int, takes: list[tuple[int, int]], count: int
) -> None:
    """Rejected requests do not prolong the wait."""
    bucket = TokenBucket(per_s, burst)
    now = 10**15
    for gap, taken in takes:
        now += gap
        bucket.take(taken, now)
    before = bucket.full_at
    wait_ns = bucket.take(count, now, check_only=True)
    assert bucket.full_at == before
    assert bucket.take(count, now) == wait_ns
    assert wait_ns == 0 or bucket.full_at == before


def test_the_default_burst_is_one_second_of_units() -> None:
    assert TokenBucket(7.5).burst_ns == TokenBucket(7.5, 7).burst_ns
    assert TokenBucket(0.5).burst_ns == TokenBucket(0.5, 1).burst_ns


def test_a_burst_passes_at_once_and_then_single_units() -> None:
    bucket = TokenBucket(2, 3)
    times = [0, 0, 0, 0, S // 2 - 1, S // 2, S // 2, S]
    assert [bucket.take(1, now) for now in times] == [0, 0, 0, S // 2, 1, 0, S // 2, 0]


def test_a_take_larger_than_the_burst_passes_and_leaves_a_debt() -> None:
    """100 at a rate of 10 and a burst of 20: a debt of 80, so 8 s, and 0.1 s for the next one."""
    bucket = TokenBucket(10, 20)
    assert bucket.take(100, 5 * S) == 0
    assert bucket.take(1, 5 * S) == 8_100_000_000
    assert bucket.take(100, 5 * S) == 10 * S


def test_retry_after_is_a_whole_second_at_least() -> None:
    assert [retry_after_s(ns) for ns in (1, S - 1, S, S + 1, 90 * S)] == [1, 1, 1, 2, 90]
