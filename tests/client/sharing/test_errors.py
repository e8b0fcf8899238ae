"""Errors of the client pickle, so that they can cross between processes."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

from tailrace.client import TailraceError, errors


def error_classes() -> list[type[TailraceError]]:
    found = [getattr(errors, name) for name in errors.__all__]
    return [one for one in found if inspect.isclass(one) and issubclass(one, TailraceError)]


def test_each_error_pickles_with_its_fields_its_text_and_its_notes() -> None:
    values: dict[str, Any] = {
        "status": 409,
        "code": "some-code",
        "headers": {"producer-expected-seq": "3", "stream-next-offset": "7"},
        "sent": False,
        "seconds": 1.5,
    }
    for kind in error_classes():
        names = [] if kind is TailraceError else list(inspect.signature(kind).parameters)
        made = kind(*(values.get(name, f"a {name}") for name in names))
        made.add_note("where it happened")
        again = pickle.loads(pickle.dumps(made))
        assert type(again) is kind
        assert str(again) == str(made)
        assert vars(again) == vars(made)


def test_an_error_without_a_detail_names_status_and_url() -> None:
    assert str(errors.NotFound(404, "http://x/s")) == "404 at http://x/s"
    assert str(errors.NotFound(404, "http://x/s", None, "gone")) == "404 at http://x/s: gone"
    assert "higher epoch" in str(errors.ProducerReused(409, "http://x/s"))
