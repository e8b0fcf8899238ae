"""Flows that hand out items: what a shell turns into an iterator."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tailrace.client.flow import Flow, Give

__all__ = ["Items", "each"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """A flow whose `Give` effects are items of one type, which the flow itself cannot say."""

    flow: Flow[None]


def each(flow: Flow[None], make: Callable[[Any], Iterable[Any]]) -> Flow[None]:
    """The same flow with other items: those that are made of each of its own."""
    outcome: Any = None
    error: Exception | None = None
    while True:
        try:
            effect = flow.send(outcome) if error is None else flow.throw(error)
        except StopIteration:
            return
        outcome, error = None, None
        if isinstance(effect, Give):
            for item in effect.items:
                yield Give(make(item))
        else:
            try:
                outcome = yield effect
            except Exception as failed:
                error = failed
