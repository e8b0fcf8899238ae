"""`tailrace pipeline`: Spark jobs from streams to tables and back, imported when they run."""

from importlib import import_module
from typing import Final

import click

__all__ = ["pipeline"]

_JOBS: Final = ("archive", "materialize", "fold", "replay", "mirror")


class _Jobs(click.Group):
    """Subcommands by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _JOBS:
            return None
        module = import_module(f"tailrace.cli.pipeline.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=_Jobs)
def pipeline() -> None:
    """
    Copy streams to tables, tables to streams, and streams to other servers.

    The jobs run on Spark: pip install 'tailrace[spark]'.
    """
