"""Every refusal: fields, texts, and pickling (errors travel between processes)."""

import copy
import importlib
import inspect
import pickle
from typing import Any, Final

import pytest

from tailrace.protocol.errors import Refusal

MODULES: Final = ("tailrace.protocol.errors", "tailrace.engine.errors", "tailrace.server.errors")


def _refusals() -> list[type[Refusal]]:
    found: list[type[Refusal]] = []
    for name in MODULES:
        module = importlib.import_module(name)
        for member in vars(module).values():
            if not inspect.isclass(member) or not issubclass(member, Refusal):
                continue
            if member.__module__ == name:
                found.append(member)
                assert member.__name__ in module.__all__
    return found


REFUSALS: Final = _refusals()
IDS: Final = [refusal.__name__ for refusal in REFUSALS]
SAMPLES: Final[dict[Any, Any]] = {int: 7, str: "é\n'text'", int | None: 8, str | None: "other"}


def _make(refusal: type[Refusal], *, optional: bool) -> Refusal:
    """An instance with a telling value for every parameter, or only for those without default."""
    if refusal.__init__ is Exception.__init__:
        return refusal("a reason") if optional else refusal()
    arguments = [
        SAMPLES[parameter.annotation]
        for parameter in list(inspect.signature(refusal.__init__).parameters.values())[1:]
        if optional or parameter.default is inspect.Parameter.empty
    ]
    return refusal(*arguments)


def _all() -> list[Refusal]:
    return [_make(refusal, optional=optional) for refusal in REFUSALS for optional in (True, False)]


def test_every_refusal_is_tested_here() -> None:
    """The list is found, not written: it must have found a good number."""
    assert len(REFUSALS) > 30


@pytest.mark.parametrize("refusal", _all(), ids=lambda refusal: type(refusal).__name__)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_keeps_class_fields_and_texts(refusal: Refusal, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(refusal, protocol))
    assert type(again) is type(refusal)
    assert again.args == refusal.args
    assert vars(again) == vars(refusal)
    assert (again.detail, again.status, again.code, again.title) == (
        refusal.detail,
        refusal.status,
        refusal.code,
        refusal.title,
    )
    assert str(again) == str(refusal)


@pytest.mark.parametrize("refusal", _all(), ids=lambda refusal: type(refusal).__name__)
def test_copy_keeps_the_fields(refusal: Refusal) -> None:
    assert vars(copy.deepcopy(refusal)) == vars(refusal)


@pytest.mark.parametrize("refusal", REFUSALS, ids=IDS)
def test_every_field_is_an_attribute_of_its_name(refusal: type[Refusal]) -> None:
    if refusal.__init__ is Exception.__init__:
        return
    made = _make(refusal, optional=True)
    for name, parameter in list(inspect.signature(refusal.__init__).parameters.items())[1:]:
        assert getattr(made, name) == SAMPLES[parameter.annotation]


@pytest.mark.parametrize("refusal", _all(), ids=lambda refusal: type(refusal).__name__)
def test_every_refusal_says_what_was_wrong(refusal: Refusal) -> None:
    assert 400 <= refusal.status < 600
    assert refusal.detail.strip()
    assert refusal.title[0].isupper() and not refusal.title.endswith(".")
    assert refusal.code == refusal.code.lower() and " " not in refusal.code
    assert type(refusal).__doc__


def test_codes_are_unique() -> None:
    """A client that looks at the code must know which failure it is."""
    codes = [refusal.code for refusal in REFUSALS]
    assert len(set(codes)) == len(codes)


def test_a_reason_given_is_the_detail_else_the_title() -> None:
    assert Refusal("why").detail == "why"
    assert Refusal().detail == Refusal.title
