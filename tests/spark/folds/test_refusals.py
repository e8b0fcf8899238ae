"""The messages and snapshots that folds refuse."""

import pickle

import pytest

from tailrace.protocol.content_type import essence
from tailrace.protocol.errors import ContentTypeInvalid
from tailrace.spark.folds import FOLDS, FoldInvalid, FoldSpec, MessageRefused, StateRefused
from tests.support.garbage import garbage_collection_disabled

JSON = "application/json"
LAST = FoldSpec.of("last-write-wins", "id")


def tuples(state: object, messages: list[object]) -> object:
    return {"pair": (1, 2)}


def raises(state: object, messages: list[object]) -> object:
    raise RuntimeError("not today")


def picky(state: object, messages: list[object]) -> object:
    raise MessageRefused(messages.index(3), "three")


def not_a_number(state: object, messages: list[object]) -> object:
    return [float("nan")]


REFUSED = [
    ("last-write-wins", b'{"ID":1}'),
    ("last-write-wins", b'{"id":null}'),
    ("last-write-wins", b'{"id":{}}'),
    ("last-write-wins", b'{"id":[1]}'),
    ("last-write-wins", b"7"),
    ("last-write-wins", b'[{"id":1}]'),
    ("state", b'{"type":"t","key":"k","value":1}'),
    ("state", b'{"type":"t","key":"k","headers":{"operation":"insert"}}'),
    ("state", b'{"type":"","key":"k","value":1,"headers":{"operation":"insert"}}'),
    ("state", b'{"type":"t","key":7,"value":1,"headers":{"operation":"insert"}}'),
    ("state", b'{"type":"t","value":1,"headers":{"operation":"insert"}}'),
    ("state", b'{"type":"t","key":"k","value":1,"headers":{"operation":"replace"}}'),
    ("state", b'{"headers":{"control":"rest"}}'),
    ("state", b'"text"'),
]
GOOD = {
    "last-write-wins": b'{"id":1}',
    "state": b'{"type":"t","key":"k","value":1,"headers":{"operation":"insert"}}',
}


@pytest.mark.parametrize(("name", "message"), REFUSED)
def test_an_invalid_message_is_refused_with_its_index(name: str, message: bytes) -> None:
    """Never skipped: the snapshot would replace it. Even where a later message replaces it."""
    spec = FoldSpec.of(name, "id" if name == "last-write-wins" else None)
    fold = spec.new(JSON, None)
    with pytest.raises(MessageRefused) as refused:
        fold.take([GOOD[name], GOOD[name], message, GOOD[name]])
    assert refused.value.index == 2
    assert pickle.loads(pickle.dumps(refused.value)).args == refused.value.args


@pytest.mark.parametrize(
    ("name", "snapshot"),
    [
        ("last-write-wins", b'{"id":1}'),
        ("last-write-wins", b"[1]"),
        ("last-write-wins", b'[{"id":1}'),
        ("state", b"[{}]"),
        ("merge-patch", b"{"),
        ("concat", b"{}"),
    ],
)
def test_a_snapshot_that_is_not_a_state_is_refused(name: str, snapshot: bytes) -> None:
    spec = FoldSpec.of(name, "id" if name == "last-write-wins" else None)
    with pytest.raises(StateRefused):
        spec.new(JSON, snapshot)


def test_a_patch_too_deep_is_refused_and_not_a_crash() -> None:
    fold = FoldSpec.of("merge-patch").new(JSON, None)
    with garbage_collection_disabled(), pytest.raises(MessageRefused):
        fold.take([b'{"a":' * 5000 + b"1" + b"}" * 5000])


@pytest.mark.parametrize(("function", "index"), [("raises", 0), ("picky", 2)])
def test_an_error_of_a_function_is_a_refusal(function: str, index: int) -> None:
    fold = FoldSpec.of(f"{__name__}:{function}").new(JSON, None)
    with pytest.raises(MessageRefused) as refused:
        fold.take([b"1", b"2", b"3"])
    assert refused.value.index == index


@pytest.mark.parametrize("function", ["tuples", "not_a_number"])
def test_a_state_that_decodes_to_another_is_refused(function: str) -> None:
    fold = FoldSpec.of(f"{__name__}:{function}").new(JSON, None)
    fold.take([b"1"])
    with pytest.raises(StateRefused):
        fold.finish()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("last-write-wins", None),
        ("last-write-wins", ""),
        ("last-write-wins", "a..b"),
        ("last-write-wins", "/"),
        ("last-write-wins", 'a"b'),
        ("last-write-wins", "k" * 101),
        ("state", "id"),
        ("lww", None),
        ("no.such.module:function", None),
        ("json:no_such_function", None),
        ("json:__doc__", None),
    ],
)
def test_an_invalid_fold_is_refused_before_spark_runs(name: str, key: str | None) -> None:
    with pytest.raises(FoldInvalid) as refused:
        FoldSpec.of(name, key)
    assert pickle.loads(pickle.dumps(refused.value)).args == refused.value.args


ALL = [*(FoldSpec.of(name) for name in FOLDS if name != "last-write-wins"), LAST,
       FoldSpec.of("last-write-wins", "a.é/b"), FoldSpec.of("json:dumps")]  # fmt: skip


@pytest.mark.parametrize("stream_type", [JSON, "text/plain; charset=utf-8", "x/y;" + "z" * 250])
def test_a_fold_recognizes_only_its_own_snapshots(stream_type: str) -> None:
    """And what it writes is a content type that servers keep."""
    for spec in ALL:
        made = spec.snapshot_type(stream_type)
        essence(made)
        assert [other for other in ALL if other.made(made, stream_type)] == [spec]
        assert not spec.made(JSON, stream_type) and not spec.made(stream_type, stream_type)


def test_a_content_type_that_is_too_long_is_refused_by_the_protocol() -> None:
    """An assumption of the test above."""
    with pytest.raises(ContentTypeInvalid):
        essence("x/y;" + "z" * 253)


def test_both_forms_of_a_path_are_equal() -> None:
    assert FoldSpec.of("last-write-wins", "a.b") == FoldSpec.of("last-write-wins", "/a/b")
    dotted = FoldSpec.of("last-write-wins", "/a.b/c~1d")
    assert dotted.path == ("a.b", "c/d")
    assert dotted.snapshot_type(JSON) == (
        'application/json; fold="last-write-wins"; key="/a.b/c~1d"'
    )


@pytest.mark.parametrize("name", FOLDS)
def test_folds_that_parse_messages_need_json(name: str) -> None:
    spec = FoldSpec.of(name, "id" if name == "last-write-wins" else None)
    assert spec.suits("application/vnd.x+json")
    assert spec.suits("text/plain") == (name == "concat")
