"""The base of all exceptions: fields, message, pickling."""

from __future__ import annotations

import pickle
from typing import ClassVar

import pytest

from tailrace.exceptions import ExitCode, TailraceError


class Refused(TailraceError):
    """An error with fields, one of them optional."""

    message = "{name!r} is not allowed here"
    exit_code = ExitCode.CONFLICT
    status: ClassVar[int] = 409
    name: str
    limit: int = 3


class RefusedAgain(Refused):
    """A subclass that adds a field."""

    message = "{name} was refused {times} times"
    times: int = 2


def test_a_message_is_made_from_the_fields() -> None:
    assert str(Refused("x y")) == "'x y' is not allowed here"
    assert str(RefusedAgain("x", times=4)) == "x was refused 4 times"


def test_a_base_without_a_message_prints_its_arguments() -> None:
    assert str(TailraceError("plain")) == "plain"


@pytest.mark.parametrize("error", [Refused("a"), Refused(name="a", limit=9), RefusedAgain("b")])
def test_every_error_pickles_with_its_fields(error: Refused) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


def test_errors_are_hashable_and_compare_by_identity() -> None:
    one = Refused("a")
    assert one in {one}
    assert one != Refused("a")
