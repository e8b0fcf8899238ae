"""The option of the commands that work on a data directory without a server."""

from pathlib import Path

import click

__all__ = ["data_dir_option"]

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="TAILRACE_DATA_DIR",
    required=True,
    metavar="DIR",
    show_envvar=True,
    help="The data directory.",
)
