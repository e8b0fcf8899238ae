"""The command's root."""

import click

from tailrace import __version__
from tailrace.cli.serve import serve

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tailrace")
def main() -> None:
    """Durable streams: append-only, replayable, live-tailable, over HTTP."""


main.add_command(serve)
