"""Marks: what a checkpoint keeps of each stream."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.source.read_positions import Mark, dump_marks, load_marks, parse_mark


@given(st.text(min_size=1, max_size=20), st.none() | st.integers(0, 2**53), st.booleans())
def test_a_mark_is_what_it_was(offset: str, created_ms: int | None, done: bool) -> None:
    """Offsets of other servers are any text."""
    mark = Mark(offset, created_ms, done)
    assert parse_mark(mark.text()) == mark


def test_marks_are_a_copy() -> None:
    marks = {"a": "1"}
    found = load_marks(dump_marks(marks))
    found["a"] = "2"
    assert marks == {"a": "1"}
