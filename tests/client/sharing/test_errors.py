"""Errors cross from one process to another."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from tailrace.client import TailraceError, errors


def error_classes() -> list[type[TailraceError]]:
    found = [getattr(errors, name) for name in errors.__all__]
    return [one for one in found if inspect.isclass(one) and issubclass(one, TailraceError)]


@pytest.mark.parametrize("kind_of_error", error_classes(), ids=lambda one: one.__name__)
def test_errors_cross_processes(kind_of_error: type[TailraceError]) -> None:
    """Whatever its arguments are called: as it was, with its fields and its text."""
    values: dict[str, Any] = {
        "status": 409,
        "code": "some-code",
        "headers": {"producer-expected-seq": "3", "stream-next-offset": "7"},
        "sent": False,
    }
    names = (
        [] if kind_of_error is TailraceError else list(inspect.signature(kind_of_error).parameters)
    )
    made = kind_of_error(*(values.get(name, f"a {name}") for name in names))
    made.add_note("where it happened")
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is kind_of_error
    assert str(again) == str(made)
    assert vars(again) == vars(made)
