"""Every refusal: fields, texts, and pickling (errors are sent between processes)."""

import copy
import importlib
import inspect
import pickle
from typing import Any, Final

from tailrace.protocol.errors import BucketNotEmpty, BucketNotFound, Refusal, SnapshotNotFound

MODULES: Final = (
    "tailrace.protocol.errors",
    "tailrace.protocol.subscription_errors",
    "tailrace.engine.errors",
    "tailrace.server.errors",
)


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
SAMPLES: Final[dict[Any, Any]] = {int: 7, str: "é\n'text'", int | None: 8, str | None: "other"}


def _make(refusal: type[Refusal], *, optional: bool) -> Refusal:
    """An instance with a sample value for every field, or only for those without a default."""
    arguments = [
        SAMPLES[parameter.annotation]
        for parameter in list(inspect.signature(refusal.__init__).parameters.values())[1:]
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and (optional or parameter.default is inspect.Parameter.empty)
    ]
    return refusal(*arguments)


def _all() -> list[Refusal]:
    return [_make(refusal, optional=optional) for refusal in REFUSALS for optional in (True, False)]


def test_every_refusal_is_tested_here() -> None:
    """The list is collected from the modules, so it must not be short."""
    assert len(REFUSALS) > 30


def test_pickle_and_copy_keep_class_fields_and_texts() -> None:
    for refusal in _all():
        copies = [copy.deepcopy(refusal)]
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            copies.append(pickle.loads(pickle.dumps(refusal, protocol)))
        for again in copies:
            assert type(again) is type(refusal)
            assert vars(again) == vars(refusal)
            assert (again.detail, again.status, again.code, again.title) == (
                refusal.detail,
                refusal.status,
                refusal.code,
                refusal.title,
            )
            assert str(again) == str(refusal)


def test_every_field_is_an_attribute_of_its_name() -> None:
    for refusal in REFUSALS:
        made = _make(refusal, optional=True)
        for name, parameter in list(inspect.signature(refusal.__init__).parameters.items())[1:]:
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                assert getattr(made, name) == SAMPLES[parameter.annotation]


def test_every_refusal_says_what_was_wrong() -> None:
    for refusal in _all():
        assert 400 <= refusal.status < 600
        assert refusal.detail.strip()
        assert refusal.title[0].isupper() and not refusal.title.endswith(".")
        # Those of subscriptions are the protocol's own, in upper case.
        assert refusal.code in (refusal.code.lower(), refusal.code.upper())
        assert " " not in refusal.code
        assert type(refusal).__doc__


def test_codes_are_unique() -> None:
    """A client identifies a failure by its code."""
    codes = [refusal.code for refusal in REFUSALS]
    assert len(set(codes)) == len(codes)


def test_a_literal_brace_in_a_message_is_not_a_field() -> None:
    assert "PUT /{bucket_id}" in BucketNotFound().detail
    assert "GET /{bucket_id}/streams" in BucketNotEmpty(3).detail
    assert SnapshotNotFound().detail.endswith("/snapshot/{offset}")
