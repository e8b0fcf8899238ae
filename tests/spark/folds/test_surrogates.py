"""Messages with half of an escaped surrogate pair, which servers store, can be folded."""

import pytest

from tailrace.spark.folds.base import MessageRefused
from tailrace.spark.folds.last_write_wins import LastWriteWins
from tailrace.spark.folds.merge_patch import MergePatch
from tailrace.spark.folds.raw_members import raw_members
from tailrace.spark.folds.state import StateFold

HALF = rb"\ud83d"


def test_merge_patch_keeps_the_bytes_of_members() -> None:
    fold = MergePatch(None)
    fold.take(
        [
            b'{"a":1.10,"c":{"x":1}}',
            b'{ "b" : "%b", "c":{ "y": 2, "x":null } }' % HALF,
            b'{"%b":[1.0, "%b"]}' % (HALF, HALF),
        ]
    )
    state = b'{"a":1.10,"c":{"y":2},"b":"%b","%b":[1.0, "%b"]}' % (HALF, HALF, HALF)
    assert fold.finish() == state
    again = MergePatch(state)
    again.take([b'{"%b":null}' % HALF])
    assert again.finish() == b'{"a":1.10,"c":{"y":2},"b":"%b"}' % HALF


def test_state_keeps_the_bytes_of_values() -> None:
    value = b'{"n":1.10,"s":"%b"}' % HALF
    update = b'{"type":"t","key":"k","value":%b,"headers":{"operation":"update","txid":"1"}}'
    keyed = b'{"type":"t","key":"%b","value":1,"headers":{"operation":"insert"}}' % HALF
    fold = StateFold(None)
    fold.take([update % value, keyed])
    insert = b'{"type":"t","key":"k","value":%b,"headers":{"operation":"insert","txid":"1"}}'
    state = b"[" + insert % value + b"," + keyed + b"]"
    assert fold.finish() == state
    assert StateFold(state).finish() == state


def test_state_refuses_what_is_not_a_change() -> None:
    with pytest.raises(MessageRefused):
        StateFold(None).take([b'{"type":1,"key":"%b","headers":{"operation":"insert"}}' % HALF])


def test_last_write_wins_by_such_a_key_and_beside_it() -> None:
    fold = LastWriteWins(None, ("id", "n"))
    first, second = b'{"id":{"n":1},"s":"%b"}' % HALF, b'{"id":{"n":"%b"}}' % HALF
    fold.take([first, second, b'{"id":{"n":1},"s":2}'])
    assert fold.finish() == b"[" + second + b',{"id":{"n":1},"s":2}]'
    with pytest.raises(MessageRefused, match="no key"):
        fold.take([b'{"other":"%b"}' % HALF])


def test_members_of_an_object() -> None:
    text = b' { "a" : { "b" : [ ] } , "%b":"}," , "":1e400 } ' % HALF
    assert raw_members(text) == {"a": b'{ "b" : [ ] }', "\ud83d": b'"},"', "": b"1e400"}
    assert raw_members(b'{"a":"%b"}' % HALF) == {"a": b'"%b"' % HALF}
