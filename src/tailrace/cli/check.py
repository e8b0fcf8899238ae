"""`tailrace check`: verify a data directory."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tailrace.cli.failures import Failure, one_line
from tailrace.cli.output import Output, counted, human_bytes
from tailrace.cli.parameters import data_dir_option
from tailrace.cli.progress import Progress, progress_option, show_progress
from tailrace.cli.signals import exit_on_signals
from tailrace.exceptions import ExitCode

if TYPE_CHECKING:
    from tailrace.engine.rocks.check import Checked
    from tailrace.engine.rocks.findings import Finding

__all__ = ["check"]


@click.command()
@data_dir_option
@click.option("--json", "is_json", is_flag=True, help="Print findings and a summary as JSON lines.")
@progress_option
def check(data_dir: Path, is_json: bool, progress: bool | None) -> int:
    """
    Verify stored data: every checksum, every record, every stream.

    Changes nothing. No server may use the directory: to check a running server, restore a backup
    of it elsewhere. Exits with 1 if data is damaged. A log that ends within a record, as after a
    kill, is not damaged.
    """
    from tailrace.engine.rocks.check import check as run
    from tailrace.engine.rocks.check import total_bytes
    from tailrace.engine.rocks.store import FORMAT_VERSION

    output = Output()

    def note(finding: "Finding") -> None:
        output.line(msgspec.json.encode(finding) if is_json else one_line(finding.line()))

    try:
        total = total_bytes(data_dir)
        with exit_on_signals(), show_progress(Progress("check", total), progress) as shown:
            checked = run(data_dir, FORMAT_VERSION, note, shown.advance)
    except OSError as error:
        raise Failure(f"{data_dir}: {error.strerror or error}") from error
    _print_summary(output, checked, is_json=is_json)
    return ExitCode.FAILED if checked.findings else ExitCode.DONE


def _print_summary(output: Output, checked: "Checked", *, is_json: bool) -> None:
    if is_json:
        output.line(msgspec.json.encode({"summary": checked}))
    else:
        for remark in checked.remarks:
            output.line(one_line(remark.line()))
        sizes = [
            counted(checked.streams, "stream"),
            counted(checked.records, "record"),
            counted(checked.files, "file"),
            human_bytes(checked.bytes),
        ]
        result = counted(checked.findings, "finding") if checked.findings else "no damage"
        output.line(f"{', '.join(sizes)}: {result}")
    output.finish()
