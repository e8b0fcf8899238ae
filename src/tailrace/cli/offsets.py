"""Offsets on the command line."""

import click

from tailrace.cli.parameters import TEXT
from tailrace.client import Head
from tailrace.client.decoding import split_place

__all__ = ["BEGINNING", "offset_option", "resolve"]

BEGINNING = "-1"
_NOW = "now"


def _check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            split_place(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return value


offset_option = click.option(
    "--offset",
    metavar="OFFSET",
    type=TEXT,
    callback=_check,
    help="Begin here: an offset that was returned before; -1 is the beginning, now the tail.",
)


def resolve(offset: str | None, head: Head) -> str:
    """Where to begin; the tail by its offset, to which counts of messages can be added."""
    if offset == _NOW:
        return head.next_offset
    return BEGINNING if offset is None else offset
