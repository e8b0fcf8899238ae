"""`tailrace restore`: a backup into a data directory."""

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.failures import Failure
from tailrace.cli.files import opened
from tailrace.cli.output import human_bytes, print_lines
from tailrace.cli.parameters import data_dir_option
from tailrace.cli.progress import Progress, progress_option, show_progress
from tailrace.cli.signals import exit_on_signals

if TYPE_CHECKING:
    from tailrace.engine.backup_format import Manifest

__all__ = ["restore"]


@click.command()
@click.argument("backup", type=click.Path(path_type=Path, allow_dash=True))
@data_dir_option
@progress_option
def restore(backup: Path, data_dir: Path, progress: bool | None) -> None:
    """
    Restore a backup to a data directory.

    BACKUP may be -, for standard input. The directory must be empty or not exist. It becomes a
    database when the whole backup is verified and on the disk.
    """
    from tailrace.engine.restore import BackupInvalid
    from tailrace.engine.restore import restore as run
    from tailrace.engine.rocks.store import FORMAT_VERSION

    with ExitStack() as stack:
        stack.enter_context(exit_on_signals())
        source = stack.enter_context(opened(backup))

        def started(manifest: "Manifest") -> Callable[[int], object]:
            shown = show_progress(Progress("restore", manifest.bytes), progress)
            return stack.enter_context(shown).advance

        try:
            manifest = run(source, data_dir, FORMAT_VERSION, started)
        except BackupInvalid as error:
            raise Failure(
                f"{backup}: {error}", hint="nothing was restored: use another backup"
            ) from error
        except OSError as error:
            raise Failure(f"{data_dir}: {error.strerror or error}") from error
    _print_summary(manifest, data_dir)


def _print_summary(manifest: "Manifest", data_dir: Path) -> None:
    moment = datetime.fromtimestamp(manifest.time_ms / 1000, UTC).isoformat(timespec="seconds")
    directory = shlex.quote(str(data_dir))
    print_lines(
        f"{data_dir}: {human_bytes(manifest.bytes)}, the state at {moment}",
        f"verify it: tailrace check --data-dir {directory}",
        f"serve it: tailrace serve --data-dir {directory}",
    )
