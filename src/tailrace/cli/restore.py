"""`tailrace restore`: a backup back into a data directory."""

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.directory import data_dir_option, need_server
from tailrace.cli.failures import ExitCode, Failure
from tailrace.cli.files import opened
from tailrace.cli.output import Output, human_bytes
from tailrace.cli.progress import progress_option, shown
from tailrace.cli.signals import ending_on_signals

if TYPE_CHECKING:
    from tailrace.engine.backup_format import Manifest

__all__ = ["restore"]


@click.command()
@click.argument("backup", type=click.Path(path_type=Path, allow_dash=True))
@data_dir_option
@progress_option
def restore(backup: Path, data_dir: Path, progress: bool | None) -> None:
    """
    Write a backup to a data directory.

    BACKUP may be -, for standard input. The directory must be empty, or not exist; there is a
    database in it when all of the backup is checked and on the disk.
    """
    need_server()
    from tailrace.engine.restore import BackupInvalid, DirectoryTaken
    from tailrace.engine.restore import restore as run
    from tailrace.engine.rocks.store import FORMAT_VERSION

    with ExitStack() as stack:
        stack.enter_context(ending_on_signals())
        source = stack.enter_context(opened(backup))

        def started(manifest: "Manifest") -> Callable[[int], object]:
            told = stack.enter_context(shown("restore", manifest.bytes, progress))
            return lambda size: told.advance(size, 0)

        try:
            manifest = run(source, data_dir, FORMAT_VERSION, started)
        except BackupInvalid as error:
            raise Failure(
                f"{backup}: {error}", hint="nothing was restored: use another backup"
            ) from error
        except DirectoryTaken as error:
            raise Failure(
                f"{data_dir} is not empty, and nothing in it is overwritten",
                ExitCode.CONFLICT,
                "restore to another directory, or move this one away first",
            ) from error
        except OSError as error:
            raise Failure(f"{data_dir}: {error.strerror or error}") from error
    _tell(manifest, data_dir)


def _tell(manifest: "Manifest", data_dir: Path) -> None:
    moment = datetime.fromtimestamp(manifest.time_ms / 1000, UTC).isoformat(timespec="seconds")
    place = shlex.quote(str(data_dir))
    output = Output()
    output.line(f"{data_dir}: {human_bytes(manifest.bytes)}, as it was at {moment}".encode())
    output.line(f"look at it: tailrace check --data-dir {place}".encode())
    output.line(f"serve it: tailrace serve --data-dir {place}".encode())
    output.finish()
