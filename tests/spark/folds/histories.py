"""Histories of messages in unusual JSON forms, and naive folds to compare with."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from tailrace.spark.folds import FoldSpec

HISTORY_MAX = 12


@dataclass(frozen=True)
class Case:
    """A fold, its test streams, and the naive fold that it must equal."""

    spec: FoldSpec
    content_type: str
    messages: st.SearchStrategy[bytes]
    naive: Callable[[Sequence[bytes]], bytes]


# -- JSON, spelt in every way ------------------------------------------------------------------


def _escaped(text: str) -> str:
    """The same text, every character as an escape."""
    units = text.encode("utf-16-be")
    pairs = (units[at : at + 2] for at in range(0, len(units), 2))
    return '"' + "".join(f"\\u{pair.hex()}" for pair in pairs) + '"'


def spelt(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([json.dumps(text), json.dumps(text, ensure_ascii=False), _escaped(text)])


NUMBERS = st.sampled_from(
    ["0", "-0", "0.0", "1", "1.0", "10e-1", "100", "1e2", "1E+2", "-3", "-3.00", "0.1", "1e400",
     "12345678901234567890123", "12345678901234567890123.0", "9007199254740993", "1e-7"]
)  # fmt: skip
TEXTS = st.sampled_from(["a", "b", "é", "😀", "1", "", 'q"', "\\", "true", "\n"]).flatmap(spelt)
LITERALS = st.sampled_from(["true", "false"])
SPACES = st.sampled_from(["", "", "", " ", "\n\t "])


def objects(members: st.SearchStrategy[list[tuple[str, str]]]) -> st.SearchStrategy[str]:
    """Objects of given members, with white space where it may be."""
    return st.builds(
        lambda found, space: (
            "{"
            + space
            + f"{space},{space}".join(f"{name}{space}:{space}{value}" for name, value in found)
            + space
            + "}"
        ),
        members,
        SPACES,
    )


NAMES = st.sampled_from(["a", "b", "c", "é"]).flatmap(spelt)


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arrays = st.lists(inner, max_size=3).map(lambda found: "[" + " ,".join(found) + "]")
    return arrays | objects(st.lists(st.tuples(NAMES, inner), max_size=3))


VALUES = st.recursive(NUMBERS | TEXTS | LITERALS | st.just("null"), _nested, max_leaves=6)


class _Number(str):
    """A number with its text."""

    __slots__ = ()


def exactly(data: bytes) -> Any:
    """JSON with numbers as they are spelt and members in their order, to compare."""
    return json.loads(data, parse_int=_Number, parse_float=_Number, object_pairs_hook=_pairs)


def _pairs(members: list[tuple[str, Any]]) -> Any:
    return ("object", tuple(dict(members).items()))


# -- last-write-wins -----------------------------------------------------------------------------


def _keyed(inner: bool) -> st.SearchStrategy[bytes]:
    keys = TEXTS | NUMBERS | LITERALS
    rest = st.lists(st.tuples(st.sampled_from(['"n"', '"m"']), VALUES), max_size=2)

    def build(key: str, others: list[tuple[str, str]], at: int, outer: bool) -> Any:
        place = min(at, len(others))
        found = [*others[:place], ('"k"', key), *others[place:]]
        made = objects(st.just(found))
        return made.map(lambda text: '{"x":1,"in": ' + text + "}") if outer else made

    made = st.builds(build, keys, rest, st.integers(0, 2), st.just(inner))
    return made.flatmap(lambda found: found).map(str.encode)


def _key_of(message: bytes, path: Sequence[str]) -> object:
    found = json.loads(message, parse_int=Decimal, parse_float=Decimal)
    for name in path:
        found = found[name]
    return (type(found), found)


def naive_last(path: Sequence[str]) -> Callable[[Sequence[bytes]], bytes]:
    def fold(history: Sequence[bytes]) -> bytes:
        keys = [_key_of(message, path) for message in history]
        last = [
            message
            for at, message in enumerate(history)
            if keys[at] not in keys[at + 1 :]
        ]  # fmt: skip
        return b"[" + b",".join(last) + b"]"

    return fold


# -- the State Protocol --------------------------------------------------------------------------


def _change(op: str, kind: str, key: str, value: str, extra: str, old: bool) -> bytes:
    members = [f'"type": {kind}', f'"key":{key}', f'"headers":{{{extra}"operation":"{op}"}}']
    if op != "delete":
        members.insert(2, f'"value" : {value}')
    if old:
        members.append('"old_value":{"value":7}')
    return ("{" + ", ".join(members) + "}").encode()


CHANGES = st.builds(
    _change,
    st.sampled_from(["insert", "update", "upsert", "update", "delete"]),
    st.sampled_from(["user", "é"]).flatmap(spelt),
    st.sampled_from(["1", "2", "ü"]).flatmap(spelt),
    VALUES,
    st.sampled_from(["", '"txid":"t1",', '"timestamp":"2026-01-01T00:00:00Z", "other":1,']),
    st.booleans(),
)
CONTROLS = st.sampled_from(
    [
        b'{"headers":{"control":"reset"}}',
        b'{"headers":{"control":"snapshot-start","offset":"1_2"}}',
        b'{"headers":{"control":"snapshot-end"}}',
    ]
)  # fmt: skip


def naive_state(history: Sequence[bytes]) -> bytes:
    """Apply each change to a map; then write inserts."""
    entities: dict[tuple[str, str], bytes] = {}
    for message in history:
        found = json.loads(message)
        headers = found["headers"]
        if headers.get("control") == "reset":
            entities = {}
        if "operation" not in headers:
            continue
        entity = found["type"], found["key"]
        if headers["operation"] == "delete":
            entities.pop(entity, None)
        else:
            entities[entity] = _naive_insert(message, headers)
    return b"[" + b",".join(entities.values()) + b"]"


def _naive_insert(message: bytes, headers: dict[str, Any]) -> bytes:
    if headers["operation"] == "insert":
        return message
    kept = "".join(
        f',"{name}":"{headers[name]}"' for name in ("txid", "timestamp") if name in headers
    )
    # How `_change` spelt them, with exactly one space or none.
    text = message.decode()
    kind = text[len('{"type": ') : text.index(', "key":')]
    key = text[text.index(', "key":') + len(', "key":') : text.index(', "value" : ')]
    value = text[text.index(', "value" : ') + len(', "value" : ') : text.rindex(', "headers":')]
    return (
        f'{{"type":{kind},"key":{key},"value":{value},"headers":{{"operation":"insert"{kept}}}}}'
    ).encode()


# -- merge patch, concatenation, a function ------------------------------------------------------


def naive_patch(history: Sequence[bytes]) -> Any:
    """RFC 7396, section 2, as it stands there, over values as `exactly` has them."""
    document: Any = None
    for patch in history:
        document = _merge(document, exactly(patch))
    return document


def _merge(target: Any, patch: Any) -> Any:
    if not _is_object(patch):
        return patch
    members = dict(target[1]) if _is_object(target) else {}
    for name, value in patch[1]:
        if value is None:
            members.pop(name, None)
        else:
            members[name] = _merge(members.get(name), value)
    return ("object", tuple(members.items()))


def _is_object(value: Any) -> bool:
    return isinstance(value, tuple)


def naive_array(history: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(history) + b"]"


def count_words(state: dict[str, int] | None, messages: list[Any]) -> dict[str, int]:
    """A user's fold: how often each message came, in the order of their first time."""
    counts = state or {}
    for message in messages:
        word = json.dumps(message)
        counts[word] = counts.get(word, 0) + 1
    return counts


def naive_words(history: Sequence[bytes]) -> bytes:
    counts: dict[str, int] = {}
    for message in history:
        word = json.dumps(json.loads(message))
        counts[word] = counts.get(word, 0) + 1
    return json.dumps(counts, ensure_ascii=False, separators=(",", ":")).encode()


def longest(state: bytes | None, messages: list[bytes]) -> bytes:
    """A user's fold of bytes: the longest message, the first of several."""
    return max([state or b"", *messages], key=len)


JSON = "application/json"
CASES = {
    "last-write-wins": Case(
        FoldSpec.of("last-write-wins", "k"), JSON, _keyed(False), naive_last(("k",))
    ),
    "last-write-wins, inside": Case(
        FoldSpec.of("last-write-wins", "in.k"), "text/x+json", _keyed(True), naive_last(("in", "k"))
    ),
    "state": Case(FoldSpec.of("state"), JSON, CHANGES | CHANGES | CONTROLS, naive_state),
    "concat of JSON": Case(FoldSpec.of("concat"), JSON, VALUES.map(str.encode), naive_array),
    "concat of bytes": Case(
        FoldSpec.of("concat"), "text/plain", st.binary(min_size=1, max_size=5), b"".join
    ),
    "a function over JSON": Case(
        FoldSpec.of(f"{__name__}:count_words"),
        JSON,
        (st.sampled_from(["1", '"a"', "null", '{"b":[2]}']) | TEXTS).map(str.encode),
        naive_words,
    ),
    "a function over bytes": Case(
        FoldSpec.of(f"{__name__}:longest"),
        "image/png",
        st.binary(min_size=1, max_size=5),
        lambda history: max([b"", *history], key=len),
    ),
}
PATCHES = VALUES.map(str.encode)
