"""Read positions, as a checkpoint stores them."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.source.read_positions import (
    ReadPosition,
    dump_positions,
    load_positions,
    parse_position,
)


@given(st.text(min_size=1, max_size=20), st.none() | st.integers(0, 2**53), st.booleans())
def test_a_position_round_trips_through_text(
    offset: str, created_ms: int | None, done: bool
) -> None:
    """Offsets of other servers are any text."""
    position = ReadPosition(offset, created_ms, done)
    assert parse_position(position.text()) == position


def test_loaded_positions_are_a_copy() -> None:
    positions = {"a": "1"}
    found = load_positions(dump_positions(positions))
    found["a"] = "2"
    assert positions == {"a": "1"}
