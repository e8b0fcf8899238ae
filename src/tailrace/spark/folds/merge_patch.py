"""
JSON merge patch (RFC 7396): each message is a patch, the state is the patched document.

    a patch that is not an object   replaces the document
    a member that is null           is removed
    a member that is an object      is merged into the existing object, or into {}
    any other member                replaces the existing one, at the same position

Objects are encoded without white space, with members in the order of arrival; other values,
including arrays and their content, keep their bytes. The initial document is `null`.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from tailrace.protocol.json_mode import check_value
from tailrace.spark.folds.base import MessageRefused, StateRefused
from tailrace.spark.folds.raw_members import encode_name, raw_members

__all__ = ["MergePatch"]

_Document: TypeAlias = "dict[str, _Document] | bytes"


class MergePatch:
    """The patched document."""

    def __init__(self, snapshot: bytes | None) -> None:
        document = b"null" if snapshot is None else snapshot
        try:
            check_value(document)
            self._document = _open(document.strip())
        except (msgspec.DecodeError, RecursionError) as error:
            raise StateRefused(f"the snapshot is not a JSON document: {error}") from None

    def take(self, values: Sequence[bytes]) -> None:
        for index, value in enumerate(values):
            try:
                self._document = _merge(self._document, value)
            except (msgspec.DecodeError, RecursionError) as error:
                raise MessageRefused(index, f"it cannot be merged: {error}") from None

    def finish(self) -> bytes:
        parts: list[bytes] = []
        try:
            _write(self._document, parts)
        except RecursionError:
            raise StateRefused("the document is nested too deeply") from None
        return b"".join(parts)


def _open(value: bytes) -> _Document:
    """The members of an object; any other value unchanged."""
    if value[:1] != b"{":
        return value
    return dict(raw_members(value))


def _merge(target: _Document, patch: bytes) -> _Document:
    """RFC 7396, section 2; a target that is an object is changed in place."""
    if patch[:1] != b"{":
        return patch
    # Members are decoded only when something is merged into them.
    merged = target if isinstance(target, dict) else _open(target)
    if not isinstance(merged, dict):
        merged = {}
    for name, member in raw_members(patch).items():
        if member == b"null":
            merged.pop(name, None)
        elif member[:1] == b"{":
            merged[name] = _merge(merged.get(name, b"null"), member)
        else:
            merged[name] = member
    return merged


def _write(document: _Document, parts: list[bytes]) -> None:
    if isinstance(document, bytes):
        parts.append(document)
        return
    before = b"{"
    for name, member in document.items():
        parts.append(before + encode_name(name) + b":")
        _write(member, parts)
        before = b","
    parts.append(b"}" if document else b"{}")
