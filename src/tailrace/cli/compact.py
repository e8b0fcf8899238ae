"""`tailrace compact`: free disk space."""

from pathlib import Path

import click

from tailrace.cli.failures import Failure
from tailrace.cli.head import as_object_option
from tailrace.cli.output import as_json, human_bytes, print_lines
from tailrace.cli.parameters import data_dir_option
from tailrace.cli.progress import Progress, progress_option, show_progress
from tailrace.exceptions import ExitCode

__all__ = ["compact"]


@click.command()
@data_dir_option
@as_object_option
@progress_option
def compact(data_dir: Path, is_json: bool, progress: bool | None) -> None:
    """
    Remove unused data from a data directory, and rewrite the rest.

    No server may use the directory. It needs free space for a copy of the stored data.
    """
    from tailrace.engine.rocks.compaction import stored_bytes
    from tailrace.engine.rocks.readonly import held

    if not (data_dir / "CURRENT").is_file():
        raise Failure(f"{data_dir} is no data directory of tailrace", ExitCode.NOT_FOUND)
    with held(data_dir):
        before = stored_bytes(data_dir)
    reclaimed = _run(data_dir, before, progress)
    after = stored_bytes(data_dir)
    sizes = {"bytes_before": before, "bytes_after": after, "garbage_bytes": reclaimed}
    if is_json:
        print_lines(as_json(sizes))
    else:
        old, new, garbage = map(human_bytes, sizes.values())
        print_lines(f"{data_dir}: {old} before, {new} now; {garbage} was garbage")


def _run(data_dir: Path, size: int, progress: bool | None) -> int:
    from tailrace.engine.rocks import RocksStore
    from tailrace.engine.rocks.compaction import reclaim_all
    from tailrace.engine.rocks.options import FAMILIES

    store = RocksStore(data_dir)
    try:
        try:
            with show_progress(Progress("compact", size), progress) as shown:
                reclaimed = reclaim_all(store, lambda _: None)
                share = size // (len(FAMILIES) + 1)
                store.compact_all(lambda _: shown.advance(share))
        finally:
            # Flushes, and so fails again if the disk or a table is faulty.
            store.close()
    except Exception as error:  # rocksdict raises plain Exception
        hint = "the stored data is unchanged; free some space, and run: tailrace check"
        raise Failure(f"{data_dir} cannot be compacted: {error}", hint=hint) from error
    return reclaimed
