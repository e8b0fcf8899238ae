"""Flows that hand out items: what a shell turns into an iterator."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from tailrace.client.flow import Flow

__all__ = ["Items"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """A flow whose `Give` effects are items of one type, which the flow itself cannot say."""

    flow: Flow[None]
