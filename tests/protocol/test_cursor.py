"""§8.1: cursors grow, and a client is never given the one that it already has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.protocol.cursor import (
    EPOCH_MS,
    INTERVAL_MS,
    JITTER_S_MAX,
    JITTER_S_MIN,
    current_cursor,
    next_cursor,
    parse_cursor,
)
from tailrace.protocol.errors import QueryInvalid

MOMENTS = st.integers(0, EPOCH_MS * 3)
JITTERS = st.integers(JITTER_S_MIN, JITTER_S_MAX)


def test_it_is_the_number_of_20_second_intervals_since_9_october_2024() -> None:
    assert current_cursor(EPOCH_MS) == 0
    assert current_cursor(EPOCH_MS + INTERVAL_MS - 1) == 0
    assert current_cursor(EPOCH_MS + INTERVAL_MS) == 1


def test_a_clock_before_the_epoch_gives_0() -> None:
    assert current_cursor(0) == 0


@given(earlier=MOMENTS, later=MOMENTS)
def test_it_never_goes_back_as_time_goes_on(earlier: int, later: int) -> None:
    if earlier > later:
        earlier, later = later, earlier
    assert current_cursor(earlier) <= current_cursor(later)


@given(now=MOMENTS, jitter_s=JITTERS)
def test_without_a_clients_cursor_it_is_the_current_one(now: int, jitter_s: int) -> None:
    assert next_cursor(None, now, jitter_s) == current_cursor(now)


@given(behind=st.integers(1, 10**6), now=st.integers(EPOCH_MS * 2, EPOCH_MS * 3), jitter_s=JITTERS)
def test_a_client_behind_gets_the_current_one(behind: int, now: int, jitter_s: int) -> None:
    current = current_cursor(now)
    assert next_cursor(current - behind, now, jitter_s) == current


@given(ahead=st.integers(0, 10**9), now=MOMENTS, jitter_s=JITTERS)
def test_a_client_at_or_ahead_gets_a_strictly_greater_one(
    ahead: int, now: int, jitter_s: int
) -> None:
    """By a jitter of 1 to 3600 seconds, in whole intervals, and never none."""
    client = current_cursor(now) + ahead
    response = next_cursor(client, now, jitter_s)
    assert client < response <= client + JITTER_S_MAX * 1000 // INTERVAL_MS


@given(polls=st.lists(st.tuples(st.integers(0, 100_000), JITTERS), min_size=1, max_size=50))
def test_a_client_that_polls_on_never_sees_one_twice(polls: list[tuple[int, int]]) -> None:
    """Each poll echoes the last cursor, some time later; no cache key comes back."""
    now, seen = EPOCH_MS, [-1]
    cursor: int | None = None
    for pause_ms, jitter_s in polls:
        now += pause_ms
        cursor = next_cursor(cursor, now, jitter_s)
        assert cursor > seen[-1]
        seen.append(cursor)


@given(client=st.integers(0, 10**14), now=MOMENTS, jitter_s=JITTERS)
def test_what_we_return_we_accept(client: int, now: int, jitter_s: int) -> None:
    """Whatever cursor is accepted, the response to it must be accepted in its turn."""
    parsed = parse_cursor(str(client))
    assert parsed == client
    response = next_cursor(parsed, now, jitter_s)
    assert parse_cursor(str(response)) == response


def test_an_empty_cursor_counts_as_none() -> None:
    assert parse_cursor("") is None


def test_anything_but_digits_is_400() -> None:
    for text in ["-1", "+1", " 1", "1 ", "1.0", "0x1", "abc", "١", "9" * 5000]:
        with pytest.raises(QueryInvalid) as caught:
            parse_cursor(text)
        assert (caught.value.status, caught.value.parameter) == (400, "cursor")
