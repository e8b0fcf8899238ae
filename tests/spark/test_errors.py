"""Errors cross processes by pickling, and carry the exit code of the command."""

import pickle
from dataclasses import fields
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, get_type_hints

import tailrace.spark
from tailrace.exceptions import ExitCode, TailraceError
from tailrace.spark.options import OptionInvalid
from tailrace.spark.sink.errors import SinkFenced, SinkUnauthorized, StreamMissing
from tailrace.spark.source.errors import MessagesGone

SAMPLES = {str: "text", int: 7, float: 1.5, object: "text"}


def error_classes() -> list[type[TailraceError]]:
    """Every error that a module of `tailrace.spark` defines."""
    found: dict[type[TailraceError], None] = {}
    for module in walk_packages(tailrace.spark.__path__, "tailrace.spark."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, TailraceError):
                found[value] = None
    return [kind for kind in found if kind.__module__.startswith("tailrace.spark.")]


def sample(kind: type[TailraceError]) -> TailraceError:
    hints = get_type_hints(kind)
    values: list[Any] = [SAMPLES.get(hints[field.name]) for field in fields(kind)]  # type: ignore[arg-type]
    return kind(*values)


def test_every_error_pickles_with_its_message() -> None:
    kinds = error_classes()
    assert len(kinds) > 40
    for kind in kinds:
        error = sample(kind)
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == str(error)
        assert vars(copy) == vars(error)


def test_every_concrete_error_has_a_message() -> None:
    bases = {"SinkError", "TableError"}
    for kind in error_classes():
        if kind.__name__ not in bases:
            assert str(sample(kind)).strip()


def test_exit_codes() -> None:
    assert OptionInvalid("url", "is required").exit_code is ExitCode.USAGE
    assert StreamMissing("s").exit_code is ExitCode.NOT_FOUND
    assert SinkFenced("s", "p/0", 3, 4).exit_code is ExitCode.CONFLICT
    assert SinkUnauthorized("s", 401, "").exit_code is ExitCode.UNAUTHORIZED
    assert MessagesGone("s", "-1").exit_code is ExitCode.GONE
