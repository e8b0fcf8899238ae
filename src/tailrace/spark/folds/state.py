"""
The State Protocol: inserts, updates and deletes of entities, each by its type and key.

    headers.operation   insert, update, upsert   the entity is this value
                        delete                   it is gone
    headers.control     reset                    all of them are gone
                        snapshot-start, -end     nothing: what lies between are changes as others

The state is a JSON array of one insert for each entity, which rebuilds it when it is applied. An
entity keeps the place of its first insert until it is deleted, as a map does. An insert stays as
it was sent; an update becomes an insert with the same type, key, value, txid and timestamp.

A reset may name an offset to start again from. It is not followed: a message that says so in the
stream itself is read in the stream's order, and what comes after it is what counts.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.spark.folds.base import MessageRefused, StateRefused
from tailrace.spark.folds.json_array import array_of, elements

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
    """The same message, with what goes into an insert as it was sent."""

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

    def __init__(self) -> None:
        self._entities: dict[tuple[str, str], bytes | int] = {}
        """The insert of each; while a piece is taken, the place in it of the latest change."""

    def start(self, snapshot: bytes | None) -> None:
        self._entities = {}
        if snapshot is None:
            return
        try:
            self.take(elements(snapshot))
        except MessageRefused as refused:
            raise StateRefused(f"element {refused.index}: {refused.reason}") from None

    def take(self, values: Sequence[bytes]) -> None:
        for place, value in enumerate(values):
            try:
                change = _decode(value)
            except msgspec.DecodeError as error:
                raise MessageRefused(place, f"it is no change: {error}") from None
            self._apply(place, change)
        entities = self._entities
        # Only what is left of a piece is written anew; no key changes meanwhile.
        for entity, held in entities.items():
            if isinstance(held, int):
                entities[entity] = _insert(values[held])

    def finish(self) -> bytes:
        return array_of([held for held in self._entities.values() if isinstance(held, bytes)])

    def _apply(self, place: int, change: _Change) -> None:
        operation = change.headers.operation
        if operation is None:
            self._control(place, change.headers.control)
        elif not change.type or not change.key:
            raise MessageRefused(place, "a change needs a type and a key, both not empty")
        elif operation == "delete":
            self._entities.pop((change.type, change.key), None)
        elif operation not in _WRITES:
            raise MessageRefused(place, f"the operation {operation[:40]!r} is not known")
        elif change.value is _NONE:
            raise MessageRefused(place, f"an {operation} needs a value")
        else:
            self._entities[change.type, change.key] = place

    def _control(self, place: int, control: str | None) -> None:
        if control not in _CONTROLS:
            raise MessageRefused(
                place, "its headers have no operation, and no control that is known"
            )
        if control == "reset":
            self._entities.clear()


def _insert(value: bytes) -> bytes:
    """The insert that a change amounts to."""
    change = _decode_exact(value)
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
