"""Appending many messages, each exactly once: shared by `append` and `import`."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

import click

from tailrace.cli.connection import Command, Location, Patience
from tailrace.cli.error_messages import failure_for
from tailrace.cli.failures import Failure, print_error
from tailrace.cli.output import counted, json_type
from tailrace.cli.parameters import EPOCH, HEADER_TEXT
from tailrace.cli.stdio import print_stderr
from tailrace.client import Appended, Head, NotFound, Producer, TailraceError
from tailrace.exceptions import ExitCode

__all__ = ["Writer", "find_or_create", "writing", "writing_options"]

LINGER_S: Final = 0.005


def _check_epoch(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value is not None and ctx.params.get("producer_id") is None:
        raise click.UsageError("--epoch needs --producer")
    return value


def writing_options(command: Command) -> Command:
    """Options of a writer; the command gets `creates`, `closes`, `producer_id` and `epoch`."""
    for option in (
        click.option(
            "--epoch",
            type=EPOCH,
            metavar="N",
            callback=_check_epoch,
            help="The epoch of --producer.  [default: the next one]",
        ),
        click.option(
            "--producer",
            "producer_id",
            metavar="ID",
            type=HEADER_TEXT,
            # Before --epoch, whose check depends on it.
            is_eager=True,
            help="Write with this producer id, and fence others that use it.",
        ),
        click.option("--close", "closes", is_flag=True, help="Close the stream at the end."),
        click.option(
            "--create", "creates", is_flag=True, help="Create the stream if it does not exist."
        ),
    ):
        command = option(command)
    return command


class Writer:
    """A producer that counts its messages."""

    def __init__(self, producer: Producer) -> None:
        self.count = 0
        self.producer = producer
        self._last: Future[Appended] | None = None

    def send(self, data: bytes) -> None:
        self._last = self.producer.append(data)
        self.count += 1

    def rejected(self, reason: str, hint: str) -> Failure:
        """The failure for input that is invalid; everything before it is stored."""
        self.producer.flush()
        return Failure(f"{reason}; stored before it: {counted(self.count)}", hint=hint)

    @property
    def stored(self) -> str:
        """At least this many messages are stored."""
        stored = self.count - len(self.producer.undelivered())
        return f"{stored:,} of {counted(self.count)} stored"

    @property
    def next_offset(self) -> str | None:
        """The tail after the last message, once everything is stored; None if nothing was sent."""
        return None if self._last is None else self._last.result().next_offset


@contextmanager
def writing(
    location: Location,
    content_type: str,
    *,
    patience: Patience = Patience.BRIEF,
    producer_id: str | None = None,
    epoch: int | None = None,
    batches: bool = True,
) -> Iterator[Writer]:
    """
    Append to a stream; everything is stored when the block ends.

    Without `batches`, each message is a request of its own.

    Raises:
        Failure: Some messages are not stored; it says how many are.
    """
    with location.stream(patience) as stream:
        producer = stream.producer(
            producer_id,
            epoch=epoch or 0,
            # Each run of the command is a new incarnation of the producer.
            auto_claim=epoch is None,
            content_type=content_type,
            linger_s=LINGER_S,
            batch_count_max=10_000 if batches else 1,
        )
        writer = Writer(producer)
        try:
            with producer:
                yield writer
        except TailraceError as error:
            failure = failure_for(error, location)
            if writer.count > 1:
                failure.message += f"; {writer.stored}"
            raise failure from error
        except KeyboardInterrupt:
            print_stderr("")
            print_error(f"interrupted; {writer.stored}")
            raise click.Abort from None


def find_or_create(
    location: Location, content_type: str, *, creates: bool, not_json: str | None = None
) -> Head:
    """
    The metadata of a stream, which is created if it does not exist and `creates` is true.

    With `not_json`, a stream that is not JSON is a failure, and this is its hint.
    """
    create = location.command("create", "--json")
    missing = None if not_json is None else f"add --create, or create it first: {create}"
    with location.stream(missing=missing) as stream:
        try:
            head = stream.head()
        except NotFound:
            if not creates:
                raise
            stream.create(content_type)
            head = stream.head()
    if not_json is not None and not json_type(head.content_type):
        message = f"{location.name} is {head.content_type}, not JSON"
        raise Failure(message, ExitCode.CONFLICT, not_json)
    return head
