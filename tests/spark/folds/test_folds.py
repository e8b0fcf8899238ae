"""Every fold equals a naive one, for any pieces and snapshots."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.spark.folds import FoldSpec
from tests.spark.folds.histories import (
    CASES,
    HISTORY_MAX,
    JSON,
    PATCHES,
    Case,
    exactly,
    naive_patch,
)

Cut = tuple[int, bool]
CUTS = st.lists(st.tuples(st.integers(0, HISTORY_MAX), st.booleans()), max_size=4)
"""Where a history is cut into pieces, and whether a snapshot is taken there."""


def folded(spec: FoldSpec, content_type: str, history: Sequence[bytes], cuts: list[Cut]) -> bytes:
    """The snapshot after a history that came in pieces, with snapshots in between."""
    fold = spec.new(content_type, None)
    before = 0
    for at, snapshot_there in [*sorted(cuts), (len(history), False)]:
        fold.take(history[before:at])
        before = min(at, len(history))
        if snapshot_there and before:
            fold = spec.new(content_type, fold.finish())
    return fold.finish()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_pieces_and_snapshots_give_the_bytes_of_the_naive_fold(
    case: Case, data: st.DataObject
) -> None:
    """
    The state depends on the history alone, down to its bytes.

    Method: odd spellings of the same values, cut anywhere, a snapshot at any of the cuts.
    """
    history = data.draw(st.lists(case.messages, min_size=1, max_size=HISTORY_MAX))
    cuts = data.draw(CUTS)
    assert folded(case.spec, case.content_type, history, cuts) == case.naive(history)


@settings(max_examples=300, deadline=None)
@given(history=st.lists(PATCHES, min_size=1, max_size=HISTORY_MAX), cuts=CUTS)
def test_merge_patch_is_that_of_the_rfc(history: list[bytes], cuts: list[Cut]) -> None:
    """The same document as RFC 7396's own algorithm, and the same bytes for every way to cut."""
    spec = FoldSpec.of("merge-patch")
    found = folded(spec, JSON, history, cuts)
    assert exactly(found) == naive_patch(history)
    assert found == folded(spec, JSON, history, [])


RFC_7396 = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7396)
def test_the_examples_of_the_rfc(target: str, patch: str, result: str) -> None:
    """RFC 7396, appendix A, the target being a snapshot."""
    fold = FoldSpec.of("merge-patch").new(JSON, target.encode())
    fold.take([patch.encode()])
    assert fold.finish() == result.encode()


@pytest.mark.parametrize(
    ("snapshot", "result"), [(b" [ ]\n", b"[1]"), (b"[ 0 ]", b"[0,1]"), (b'["]"]', b'["]",1]')]
)
def test_an_array_with_white_space_can_be_adopted(snapshot: bytes, result: bytes) -> None:
    fold = FoldSpec.of("concat").new(JSON, snapshot)
    fold.take([b"1"])
    assert fold.finish() == result
