"""Shared by the commands that work on a data directory without a server."""

from pathlib import Path

import click

from tailrace.cli.failures import Failure
from tailrace.cli.serve import check_libraries
from tailrace.exceptions import ExitCode

__all__ = ["check_libraries", "data_dir_option", "directory_in_use"]

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="TAILRACE_DATA_DIR",
    required=True,
    metavar="DIR",
    show_envvar=True,
    help="The data directory.",
)


def directory_in_use(data_dir: Path, alternative: str = "") -> Failure:
    """The failure for a directory that a running server uses."""
    hint = "stop it first"
    if alternative:
        hint += f", or {alternative}: tailrace backup FILE"
    return Failure(f"{data_dir} is in use by a running server", ExitCode.CONFLICT, hint)
