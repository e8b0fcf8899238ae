"""States that are JSON arrays of messages, whose elements keep their bytes."""

from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.spark.folds.base import Fold, MessageRefused, StateRefused

__all__ = ["array_of", "take_array"]

_decode: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def take_array(fold: Fold, snapshot: bytes | None) -> None:
    """
    Apply the messages of a snapshot to a new fold.

    Raises:
        StateRefused: It is not a JSON array of messages that the fold can take.
    """
    array = b"[]" if snapshot is None else snapshot
    try:
        # Copies: a `Raw` would keep the whole array in memory.
        fold.take([bytes(element) for element in _decode(array)])
    except MessageRefused as refused:
        raise StateRefused(f"element {refused.index}: {refused.reason}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateRefused(f"the snapshot is not a JSON array: {error}") from None


def array_of(values: Sequence[bytes]) -> bytes:
    """An array of encoded values."""
    return b"[" + b",".join(values) + b"]"
