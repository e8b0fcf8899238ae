"""
TOML files as `msgspec` structs, with errors that name the key, what it must be, and its value.

    [client]: unknown key 'foo'; known: requests_per_s, requests_burst, ...
    [[bucket]] number 2: bytes_max must be a whole number >= 0, not -1
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

__all__ = ["choices", "convert"]

T = TypeVar("T", bound=msgspec.Struct)

# What msgspec says.
_EXPECTED: Final = re.compile(r"Expected `([^`]+)`(?:, got `.*`)?(.*)")
_NOT_A_CHOICE: Final = re.compile(r"Invalid enum value .*")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
_TYPES: Final = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false",
    "datetime": "a time", "object": "a table", "array": "a list",
}  # fmt: skip


def convert(
    content: Mapping[str, Any],
    type_: type[T],
    *,
    strict: bool = True,
    dec_hook: Callable[[type, Any], Any] | None = None,
    top_level: Callable[[str], str] = "[{}]".format,
) -> T:
    """
    Convert the content of a TOML file; `top_level` formats its first keys in messages.

    Raises:
        ValueError: A key is unknown or missing, or has a value that it must not have.
    """
    try:
        return msgspec.convert(content, type_, strict=strict, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        steps = [name or int(index) for name, index in _STEP.findall(path)]
        raise ValueError(_describe(text, steps, content, type_, top_level)) from None


def choices(type_: Any) -> tuple[str, ...]:
    """The values of a `Literal`, also inside of `Annotated`, a union or a list."""
    if get_origin(type_) is Literal:
        return get_args(type_)
    return tuple(value for arg in get_args(type_) for value in choices(arg))


def _describe(
    text: str, steps: list[Any], content: Any, type_: Any, top_level: Callable[[str], str]
) -> str:
    value = content
    keys: list[str] = []
    for step in steps:
        value = value[step]
        if isinstance(step, str):
            type_ = {item.name: item.type for item in _fields(type_)}[step]
            keys.append(step if keys else top_level(step))
        elif len(keys) == 1:
            id_ = value.get("id") if isinstance(value, dict) else None
            name = id_ if isinstance(id_, str) else f"number {step + 1}"
            keys[0] = f"[[{steps[0]}]] {name}"
    subject = ": ".join(keys)
    before = f"{subject}: " if subject else ""
    if unknown := _UNKNOWN.fullmatch(text):
        known = ", ".join(item.name for item in _fields(type_))
        return f"{before}unknown key {unknown[1]!r}; known: {known}"
    if missing := _MISSING.fullmatch(text):
        return f"{before}{missing[1]} is missing"
    if expected := _EXPECTED.fullmatch(text):
        kinds = [_TYPES.get(kind, kind) for kind in expected[1].split(" | ") if kind != "null"]
        wanted = " or ".join(kinds) + expected[2]
        if "matching regex" in wanted:
            (wanted,) = (arg.description for arg in get_args(type_) if hasattr(arg, "pattern"))
        if wanted == "a list" and len(steps) == 1:
            wanted = f"written [[{steps[0]}]], once for each"
    elif _NOT_A_CHOICE.fullmatch(text):
        wanted = f"one of {', '.join(choices(type_))}"
    else:
        # From a `__post_init__` or the `dec_hook`.
        return f"{before}{text}"
    shown = "" if isinstance(value, dict | list) else f", not {value!r}"
    return f"{subject} must be {wanted}{shown}"


def _fields(type_: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a struct; `type_` may be `S`, `S | None` or `tuple[S, ...]`."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return msgspec.structs.fields(type_)
    return next(filter(None, map(_fields, get_args(type_))), ())
