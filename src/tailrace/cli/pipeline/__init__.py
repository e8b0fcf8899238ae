"""`tailrace pipeline`: Spark jobs from streams to tables and back, imported when they run."""

import click

from tailrace.cli.lazy_group import LazyGroup

__all__ = ["pipeline"]


class _Jobs(LazyGroup):
    package = __name__
    names = ("archive", "materialize", "fold", "replay", "mirror")


@click.group(cls=_Jobs)
def pipeline() -> None:
    """
    Copy streams to tables, tables to streams, and streams to other servers.

    The jobs run on Spark: pip install 'tailrace[spark]'.
    """
