"""Appending many messages, each once: what `append` and `import` share."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

import click

from tailrace.cli.connection import Patience, Target
from tailrace.cli.failures import show
from tailrace.cli.output import counted
from tailrace.cli.stdio import tell
from tailrace.client import Appended, Head, NotFound, Producer, Stream, TailraceError

__all__ = ["Writer", "create_hint", "find_or_create", "writing"]

LINGER_S: Final = 0.005


class Writer:
    """A producer, and how far it is."""

    def __init__(self, producer: Producer) -> None:
        self.count = 0
        self._producer = producer
        self._last: Future[Appended] | None = None

    def send(self, data: bytes) -> None:
        self._last = self._producer.append(data)
        self.count += 1

    def flush(self) -> None:
        self._producer.flush()

    def close_stream(self) -> None:
        self._producer.close_stream()

    @property
    def stored(self) -> int:
        """So many at least."""
        return self.count - len(self._producer.undelivered())

    @property
    def told(self) -> str:
        return f"{self.stored:,} of {counted(self.count)} stored"

    @property
    def next_offset(self) -> str | None:
        """The tail after the last message, once all is stored; none if nothing was sent."""
        return None if self._last is None else self._last.result().next_offset


@contextmanager
def writing(
    target: Target,
    content_type: str,
    *,
    patience: Patience = Patience.BRIEF,
    producer_id: str | None = None,
    epoch: int | None = None,
    together: bool = True,
) -> Iterator[Writer]:
    """
    Append to a stream; everything is stored when the block is left.

    With `together` false, each message is one to the server also where it is not JSON.

    Raises:
        Failure: Not everything could be stored; it says how much was.
    """
    with target.stream(patience) as stream:
        producer = stream.producer(
            producer_id,
            epoch=epoch or 0,
            # A run of a command is a new one: without an epoch of its own it takes the next.
            auto_claim=epoch is None,
            content_type=content_type,
            linger_s=LINGER_S,
            batch_count_max=10_000 if together else 1,
        )
        writer = Writer(producer)
        try:
            with producer:
                yield writer
        except TailraceError as error:
            failure = target.explain(error)
            if writer.count > 1:
                failure.message += f"; {writer.told}"
            raise failure from error
        except KeyboardInterrupt:
            tell("")
            show(f"interrupted; {writer.told}")
            raise click.Abort from None


def find_or_create(stream: Stream, content_type: str, *, create: bool) -> Head:
    """
    What a stream is; it is made first if it is not there and that was asked for.

    Raises:
        TailraceError: It is not there, or cannot be made.
    """
    try:
        return stream.head()
    except NotFound:
        if not create:
            raise
    stream.create(content_type)
    return stream.head()


def create_hint(target: Target) -> str:
    """What to do where a JSON stream is missing."""
    return f"add --create, or create it first: {target.spelled('create', '--json')}"
