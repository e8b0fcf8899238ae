"""Options that several jobs have."""

import click

from tailrace.cli.connection import Command
from tailrace.cli.parameters import SECONDS, TEXT

__all__ = [
    "dry_run_option",
    "following_options",
    "format_option",
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
