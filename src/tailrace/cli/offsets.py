"""The option --offset."""

import click

from tailrace.cli.parameters import TEXT
from tailrace.client import Head
from tailrace.client.decoding import split_offset
from tailrace.client.reading import BEGINNING, NOW

__all__ = ["offset_option", "resolve"]


def _check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            split_offset(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return value


offset_option = click.option(
    "--offset",
    metavar="OFFSET",
    type=TEXT,
    callback=_check,
    help="Start at this offset, which a server returned; -1 is the beginning, now is the tail.",
)


def resolve(offset: str | None, head: Head) -> str:
    """Where to start. `now` becomes the offset of the tail, to which a count can be added."""
    if offset == NOW:
        return head.next_offset
    return BEGINNING if offset is None else offset
