"""What commands share that work on a data directory, without a server."""

from pathlib import Path

import click

from tailrace.cli.failures import ExitCode, Failure
from tailrace.cli.serve import check_libraries

__all__ = ["data_dir_option", "in_use", "need_server"]

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="TAILRACE_DATA_DIR",
    required=True,
    metavar="DIR",
    show_envvar=True,
    help="The data directory.",
)

need_server = check_libraries


def in_use(data_dir: Path, instead: str = "") -> Failure:
    """What to tell where a server has the directory."""
    hint = f"stop it first, or {instead}: tailrace backup FILE" if instead else "stop it first"
    return Failure(f"{data_dir} is in use by a running server", ExitCode.CONFLICT, hint)
