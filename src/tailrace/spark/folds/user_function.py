"""
A user function, `module:function`: called with (state, messages), it returns the next state.

    JSON stream     messages are a list of JSON values, the state is a JSON value; None at first
    other streams   messages are a list of bytes, the state is bytes; None at first

The number of messages per call varies, so the function must be a fold: f(f(s, a), b) is
f(s, a + b).
It must be deterministic: another run, on another machine, continues where this one stopped. It may
change the state in place.

A JSON state is checked when it is encoded: a value that decodes to another one (a tuple, a key that
is not a string) would change the result with every snapshot.
"""

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import msgspec

from tailrace.client.encoding import encode_json
from tailrace.spark.folds.base import FoldInvalid, MessageRefused, StateRefused

__all__ = ["UserFold", "find_function"]

_loads: Final = msgspec.json.Decoder().decode


def find_function(name: str) -> Callable[[Any, Any], Any]:
    """
    Import `module:function`.

    Raises:
        FoldInvalid: There is no such module, or no such function in it.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise FoldInvalid(name, f"cannot be imported; workers need it too: {error}") from None
    if not callable(found):
        raise FoldInvalid(name, "is not a function")
    function: Callable[[Any, Any], Any] = found
    return function


class UserFold:
    """The state that a function returns."""

    def __init__(self, snapshot: bytes | None, name: str, *, as_json: bool) -> None:
        self._function = find_function(name)
        self._as_json = as_json
        self._state: Any = snapshot
        if snapshot is not None and self._as_json:
            try:
                self._state = _load(snapshot)
            except ValueError as error:
                raise StateRefused(f"the snapshot is not JSON: {error}") from None

    def take(self, values: Sequence[bytes]) -> None:
        if not values:
            return
        messages = self._messages(values)
        try:
            self._state = self._function(self._state, messages)
        except MessageRefused:
            # The function itself names the message that it cannot take.
            raise
        except Exception as error:
            raise MessageRefused(
                0, f"in this message or one of the {len(values) - 1} after it: {error!r}"
            ) from error

    def _messages(self, values: Sequence[bytes]) -> list[Any]:
        if not self._as_json:
            return list(values)
        messages: list[Any] = []
        for index, value in enumerate(values):
            try:
                messages.append(_load(value))
            except ValueError as error:
                raise MessageRefused(index, f"it cannot be decoded: {error}") from None
        return messages

    def finish(self) -> bytes:
        if not self._as_json:
            if not isinstance(self._state, bytes):
                raise StateRefused(f"the state must be bytes, not {type(self._state).__name__}")
            return self._state
        try:
            data = encode_json(self._state)
        except (TypeError, ValueError, RecursionError) as error:
            raise StateRefused(f"the state cannot be encoded as JSON: {error}") from None
        if not _is_same(_load(data), self._state):
            raise StateRefused("the state decodes to another one: use lists, dicts and strings")
        return data


def _load(data: bytes) -> Any:
    try:
        return _loads(data)
    except msgspec.DecodeError:
        # The standard library decodes longer integers, and numbers that no float holds.
        return json.loads(data)


def _is_same(read: Any, state: Any) -> bool:
    """Equality that distinguishes a tuple from a list and True from 1."""
    if type(read) is not type(state):
        return False
    if isinstance(read, dict):
        return list(read) == list(state) and all(_is_same(read[key], state[key]) for key in read)
    if isinstance(read, list):
        return len(read) == len(state) and all(map(_is_same, read, state))
    return bool(read == state)
