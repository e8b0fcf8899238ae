"""`tailrace check`: whether a data directory is what was written to it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tailrace.cli.directory import data_dir_option, in_use, need_server
from tailrace.cli.failures import ExitCode, Failure, one_line
from tailrace.cli.output import Output, counted, human_bytes
from tailrace.cli.progress import progress_option, shown
from tailrace.cli.signals import ending_on_signals

if TYPE_CHECKING:
    from tailrace.engine.rocks.check import Checked
    from tailrace.engine.rocks.findings import Finding

__all__ = ["check"]


@click.command()
@data_dir_option
@click.option("--json", "is_json", is_flag=True, help="Findings and the sum of it as JSON lines.")
@progress_option
def check(data_dir: Path, is_json: bool, progress: bool | None) -> int:
    """
    Verify all that is stored: every checksum, every record, every stream.

    Nothing is changed. No server may be using the directory; a backup of one that runs can be
    restored elsewhere, and checked there. Exits with 1 if anything is damaged; the torn end of a
    log, as a server leaves it that is killed, is not.
    """
    need_server()
    from tailrace.engine.rocks.check import DirectoryInUse, NoDatabase, total_bytes
    from tailrace.engine.rocks.check import check as run
    from tailrace.engine.rocks.store import FORMAT_VERSION

    output = Output()

    def note(finding: "Finding") -> None:
        if is_json:
            output.line(msgspec.json.encode(finding))
        else:
            output.line(one_line(finding.line()).encode("utf-8", "backslashreplace"))

    try:
        total = total_bytes(data_dir)
        with ending_on_signals(), shown("check", total, progress) as told:
            checked = run(data_dir, FORMAT_VERSION, note, lambda size: told.advance(size, 0))
    except DirectoryInUse as error:
        raise in_use(data_dir, "check a backup of it") from error
    except NoDatabase as error:
        raise Failure(str(error), ExitCode.NOT_FOUND) from error
    except OSError as error:
        raise Failure(f"{data_dir}: {error.strerror or error}") from error
    _sum(output, checked, is_json=is_json)
    return ExitCode.FAILED if checked.findings else ExitCode.DONE


def _sum(output: Output, checked: "Checked", *, is_json: bool) -> None:
    if is_json:
        output.line(msgspec.json.encode({"summary": checked}))
    else:
        for remark in checked.remarks:
            output.line(one_line(remark.line()).encode("utf-8", "backslashreplace"))
        looked = [
            counted(checked.streams, "stream"),
            counted(checked.records, "record"),
            counted(checked.files, "file"),
            human_bytes(checked.bytes),
        ]
        found = counted(checked.findings, "finding") if checked.findings else "no damage"
        output.line(f"{', '.join(looked)}: {found}".encode())
    output.finish()
