"""The plan of a fold: which streams are due, and how they are grouped."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client import Listed
from tailrace.protocol.offset import Offset
from tailrace.spark.jobs.fold.plan import DuePolicy, PlanEntry, group

NOW_MS = 1_000_000


def listed(messages: int, size: int, covered: int = 0, age_s: int = 0) -> Listed:
    """A stream with messages of the same size, some of them covered by a snapshot."""
    each = size // max(1, messages)
    snapshot = Offset(covered, covered * each).token() if covered else None
    at_ms = NOW_MS - age_s * 1000
    return Listed(
        stream_id="s",
        closed=False,
        content_type="application/json",
        size=size,
        next_offset=Offset(messages, size).token(),
        created_at_ms=0 if covered else at_ms,
        last_write_at_ms=NOW_MS,
        earliest_offset=snapshot or Offset(0, 0).token(),
        snapshot_offset=snapshot,
        snapshot_at_ms=at_ms if covered else None,
        snapshot_bytes=7 if covered else None,
    )


def is_due(policy: DuePolicy, found: Listed) -> bool:
    assert found.next_offset is not None
    entry = PlanEntry(
        "b", "s", found.content_type, found.snapshot_offset or "-1", found.next_offset, None
    )
    return policy.is_due(found, entry, NOW_MS)


@pytest.mark.parametrize(
    ("policy", "found", "due"),
    [
        (DuePolicy(), listed(1, 10), True),
        (DuePolicy(), listed(0, 0), False),
        (DuePolicy(), listed(5, 50, covered=5), False),
        (DuePolicy(), listed(6, 60, covered=5), True),
        (DuePolicy(min_messages=10), listed(9, 90), False),
        (DuePolicy(min_messages=10), listed(10, 100), True),
        (DuePolicy(min_messages=10), listed(19, 190, covered=10), False),
        (DuePolicy(min_messages=10), listed(20, 200, covered=10), True),
        (DuePolicy(min_bytes=100), listed(1, 99), False),
        (DuePolicy(min_bytes=100), listed(1, 100), True),
        (DuePolicy(min_bytes=100), listed(20, 200, covered=11), False),
        (DuePolicy(min_age_s=60), listed(1, 10, age_s=59), False),
        (DuePolicy(min_age_s=60), listed(1, 10, age_s=60), True),
        (DuePolicy(min_age_s=60), listed(2, 20, covered=1, age_s=59), False),
        (DuePolicy(min_age_s=60), listed(2, 20, covered=1, age_s=60), True),
        (DuePolicy(min_age_s=60), listed(2, 20, covered=2, age_s=60), False),
        (DuePolicy(min_messages=0), listed(0, 0), False),
        (DuePolicy(min_messages=10, min_age_s=60), listed(1, 10, age_s=60), True),
        (DuePolicy(min_bytes=100, min_messages=10), listed(10, 50), True),
    ],
)
def test_a_stream_is_due_if_it_has_new_data_and_meets_a_threshold(
    policy: DuePolicy, found: Listed, due: bool
) -> None:
    assert is_due(policy, found) is due


ENTRIES = st.lists(
    st.integers(0, 10**9).map(
        lambda size: PlanEntry("b", str(size), "text/plain", "-1", Offset(1, size).token(), None)
    ),
    max_size=40,
)


@given(entries=ENTRIES, count=st.integers(1, 8))
def test_groups_have_every_stream_once_and_about_the_same_work(
    entries: list[PlanEntry], count: int
) -> None:
    """No group could give its smallest stream to the smallest group and stay the larger one."""
    groups = group(entries, count)
    assert len(groups) == min(count, len(entries))
    assert Counter(entry for found in groups for entry in found) == Counter(entries)
    assert all(groups)
    work = [sum(entry.bytes + 4096 for entry in found) for found in groups]
    for found, total in zip(groups, work, strict=True):
        least = min(entry.bytes + 4096 for entry in found)
        assert total - least <= min(work)
