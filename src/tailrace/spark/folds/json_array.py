"""JSON arrays whose elements keep their bytes."""

from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.spark.folds.base import StateRefused

__all__ = ["array_of", "elements"]

_decode: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def elements(array: bytes) -> list[bytes]:
    """
    The elements of an array.

    Raises:
        StateRefused: It is not a JSON array.
    """
    try:
        # Copies: a `Raw` would keep the whole array in memory.
        return [bytes(element) for element in _decode(array)]
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateRefused(f"the snapshot is not a JSON array: {error}") from None


def array_of(values: Sequence[bytes]) -> bytes:
    """An array of encoded values."""
    return b"[" + b",".join(values) + b"]"
