"""
The bodies of the sink's requests.

Rule 1: each value is checked to be one JSON value before its request is sent. A server sees only
the array, in which `1,2`, `1],[2` or `[1` beside `2]` are valid JSON, but not the rows.

The check takes 0.3 µs for a row of 230 bytes, a tenth of the total. Arrow joins the values, without
a Python object for each.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.protocol.json_mode import check_value
from tailrace.spark.sink.chunking import RowChunk
from tailrace.spark.sink.errors import ValueInvalid

__all__ = ["encode_body"]

_COMMA: Final = pa.scalar(b",", pa.large_binary())
_SHOWN_BYTES: Final = 60


def encode_body(chunk: RowChunk, partition: int) -> bytes:
    """
    The body of the request for some rows.

    Raises:
        ValueInvalid: A row is not a valid message of the stream's type.
    """
    if not chunk.is_json:
        value: bytes = chunk.values[0].as_py()
        if not value:
            raise _invalid(chunk, partition, 0, "a message has at least one byte")
        return value
    _check_values(chunk, partition)
    body = b"".join((b"[", _joined(chunk.values), b"]"))
    try:
        body.decode()
    except UnicodeDecodeError:
        raise _not_utf8(chunk, partition) from None
    return body


def _joined(values: Any) -> Any:
    """The values with commas between them, in one buffer."""
    everything = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return pc.binary_join(everything, _COMMA)[0].as_buffer()


def _check_values(chunk: RowChunk, partition: int) -> None:
    at = 0
    try:
        for at, value in enumerate(chunk.values.to_pylist()):  # noqa: B007 - used below
            check_value(value)
    except RecursionError:
        raise _invalid(chunk, partition, at, "the value is nested too deeply") from None
    except ValueError as error:
        reason = f"the value is not one JSON value: {error}"
        raise _invalid(chunk, partition, at, reason) from None


def _not_utf8(chunk: RowChunk, partition: int) -> ValueInvalid:
    for at, value in enumerate(chunk.values.to_pylist()):
        try:
            value.decode()
        except UnicodeDecodeError as error:
            return _invalid(chunk, partition, at, f"the value is not UTF-8: {error.reason}")
    raise AssertionError("each value is UTF-8, but the body is not")


def _invalid(chunk: RowChunk, partition: int, at: int, reason: str) -> ValueInvalid:
    start = bytes(chunk.values[at].as_py()[:_SHOWN_BYTES])
    shown = start.decode("utf-8", "backslashreplace") if start else ""
    return ValueInvalid(str(chunk.name), partition, chunk.rows[at].as_py(), reason, repr(shown))
