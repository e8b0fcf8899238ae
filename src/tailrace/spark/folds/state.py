"""
The State Protocol: inserts, updates and deletes of entities, each by its type and key.

    headers.operation   insert, update, upsert   sets the entity to this value
                        delete                   removes the entity
    headers.control     reset                    removes all entities
                        snapshot-start, -end     ignored: the changes between them are ordinary

The state is a JSON array of one insert for each entity. Applying them again gives the same state.
An entity keeps the position of its first insert until it is deleted. An insert is kept unchanged;
an update becomes an insert with the same type, key, value, txid and timestamp.

A reset may name an offset to restart from. It is ignored: messages are read in the stream's order,
and those after the reset count.
"""

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.spark.folds.base import MessageRefused, array_of, take_array
from tailrace.spark.folds.raw_members import raw_members

__all__ = ["StateFold"]


_NONE: Final = msgspec.Raw()


class _Headers(msgspec.Struct, gc=False):
    operation: str | None = None
    control: str | None = None


class _Change(msgspec.Struct, gc=False):
    headers: _Headers
    type: str | None = None
    key: str | None = None
    value: msgspec.Raw = _NONE


class _Exact(msgspec.Struct):
    """The same message; the parts of an insert as they were sent."""

    type: msgspec.Raw
    key: msgspec.Raw
    value: msgspec.Raw
    headers: dict[str, msgspec.Raw]


_decode: Final = msgspec.json.Decoder(_Change).decode
_decode_exact: Final = msgspec.json.Decoder(_Exact).decode
_CONTROLS: Final = ("reset", "snapshot-start", "snapshot-end")
_WRITES: Final = ("insert", "update", "upsert")
_KEPT_HEADERS: Final = ("txid", "timestamp")


class StateFold:
    """The entities of a stream of changes."""

    def __init__(self, snapshot: bytes | None) -> None:
        self._entities: dict[tuple[str, str], bytes | int] = {}
        """The insert of each; inside `take`, the index of its latest change."""
        take_array(self, snapshot)

    def take(self, values: Sequence[bytes]) -> None:
        for index, value in enumerate(values):
            try:
                change = _change(value)
            except msgspec.DecodeError as error:
                raise MessageRefused(index, f"it is not a change: {error}") from None
            self._apply(index, change)
        entities = self._entities
        # Only the remaining changes are converted. The keys stay the same, so this loop is safe.
        for entity, held in entities.items():
            if isinstance(held, int):
                entities[entity] = _insert(values[held])

    def finish(self) -> bytes:
        return array_of([held for held in self._entities.values() if isinstance(held, bytes)])

    def _apply(self, index: int, change: _Change) -> None:
        operation = change.headers.operation
        if operation is None:
            self._control(index, change.headers.control)
        elif not change.type or not change.key:
            raise MessageRefused(index, "a change needs a type and a key that are not empty")
        elif operation == "delete":
            self._entities.pop((change.type, change.key), None)
        elif operation not in _WRITES:
            raise MessageRefused(index, f"the operation {operation[:40]!r} is unknown")
        elif change.value is _NONE:
            raise MessageRefused(index, f"an {operation} needs a value")
        else:
            self._entities[change.type, change.key] = index

    def _control(self, index: int, control: str | None) -> None:
        if control not in _CONTROLS:
            raise MessageRefused(index, "its headers have neither an operation nor a known control")
        if control == "reset":
            self._entities.clear()


def _change(value: bytes) -> _Change:
    try:
        return _decode(value)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # It may have half of a surrogate pair, which only the standard library reads.
        parts = raw_members(value)
        content = parts.pop("value", None)
        loaded = {name: json.loads(part) for name, part in parts.items()}
        change = msgspec.convert(loaded, _Change)
        change.value = _NONE if content is None else msgspec.Raw(content)
        return change


def _exact(value: bytes) -> _Exact:
    try:
        return _decode_exact(value)
    except msgspec.DecodeError:
        parts = {name: msgspec.Raw(part) for name, part in raw_members(value).items()}
        headers = raw_members(bytes(parts["headers"]))
        raw_headers = {name: msgspec.Raw(part) for name, part in headers.items()}
        return _Exact(parts["type"], parts["key"], parts["value"], raw_headers)


def _insert(value: bytes) -> bytes:
    """The insert that is equivalent to a change."""
    change = _exact(value)
    headers = change.headers
    if msgspec.json.decode(headers["operation"]) == "insert":
        return value
    kept = [
        b'"%s":%s' % (name.encode(), headers[name]) for name in _KEPT_HEADERS if name in headers
    ]
    joined = b",".join([b'"operation":"insert"', *kept])
    return b'{"type":%s,"key":%s,"value":%s,"headers":{%s}}' % (
        change.type, change.key, change.value, joined,
    )  # fmt: skip
