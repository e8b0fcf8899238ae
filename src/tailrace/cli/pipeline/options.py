"""Options that several jobs have."""

import click

from tailrace.cli.connection import Command
from tailrace.cli.words import SECONDS, TEXT, check_url

__all__ = [
    "check_target_url",
    "dry_run_option",
    "following_options",
    "format_option",
    "header_pairs",
    "selection_options",
]

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be read and written, and touch nothing."
)

format_option = click.option(
    "--format",
    type=click.Choice(["parquet", "iceberg", "delta"]),
    default="parquet",
    show_default=True,
    help="Of the table.",
)


def selection_options(command: Command) -> Command:
    """Which streams of a bucket; the command gets `prefix` and `pattern`."""
    prefix = click.option(
        "--prefix", default="", type=TEXT, help="Only streams whose names begin with this."
    )
    pattern = click.option(
        "--pattern", type=TEXT, help="Only streams whose names match, as 'orders-*'."
    )
    return prefix(pattern(command))


def following_options(command: Command) -> Command:
    """How a bucket is followed; the command gets `every`, `max_messages`, `ignore_data_loss`."""
    every = click.option(
        "--every",
        type=SECONDS,
        metavar="SECONDS",
        help="Go on for ever, with a batch so often.",
    )
    max_messages = click.option(
        "--max-messages",
        type=click.IntRange(min=1),
        metavar="N",
        help="A batch has at most so many messages.",
    )
    ignore = click.option(
        "--ignore-data-loss",
        is_flag=True,
        help="Go on where streams, or messages, are gone before they were read.",
    )
    return every(max_messages(ignore(command)))


def check_target_url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A server's URL."""
    if wrong := check_url(value):
        raise click.BadParameter(wrong, ctx, param)
    return value


def header_pairs(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Headers by their names."""
    found = {}
    for value in values:
        name, mark, text = value.partition(":")
        if not mark or not name.strip() or not value.isprintable() or not value.isascii():
            raise click.BadParameter(f"{value!r} is not of the form 'Name: value'", ctx, param)
        found[name.strip()] = text.strip()
    return found
