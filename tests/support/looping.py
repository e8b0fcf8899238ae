"""Cases that only multiply inputs: one test with a loop instead of a test for each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["for_each"]


def for_each(
    names: str | tuple[str, ...], cases: Iterable[Any], ids: object = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """
    Run a test for each case in a loop; written like `pytest.mark.parametrize`.

    The fixtures are made once for all cases, so a case must not depend on fresh ones. A failure
    notes its case. `ids` is accepted, so that one can be exchanged for the other, and ignored.
    """
    split = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    each = [tuple(case) if len(split) > 1 else (case,) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def looped(*args: Any, **fixtures: Any) -> None:
            for case in each:
                try:
                    test(*args, **fixtures, **dict(zip(split, case, strict=True)))
                except BaseException as error:
                    error.add_note(f"case: {case!r}")
                    raise

        signature = inspect.signature(test)
        kept = [item for item in signature.parameters.values() if item.name not in split]
        looped.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        del looped.__wrapped__
        return looped

    return decorate
