"""`tailrace compact`: give room back to the disk."""

from pathlib import Path

import click

from tailrace.cli.directory import data_dir_option, in_use, need_server
from tailrace.cli.failures import ExitCode, Failure
from tailrace.cli.output import Output, human_bytes
from tailrace.cli.progress import progress_option, shown

__all__ = ["compact"]


@click.command()
@data_dir_option
@click.option("--json", "is_json", is_flag=True, help="The sizes as one object.")
@progress_option
def compact(data_dir: Path, is_json: bool, progress: bool | None) -> None:
    """
    Remove all that is no longer needed from a data directory, and write the rest anew.

    No server may be using it. As much room as its streams take must be free meanwhile.
    """
    need_server()
    from tailrace.engine.rocks.compaction import stored_bytes
    from tailrace.engine.rocks.readonly import DirectoryInUse, held

    if not (data_dir / "CURRENT").is_file():
        raise Failure(f"{data_dir} is no data directory of tailrace", ExitCode.NOT_FOUND)
    try:
        with held(data_dir):
            before = stored_bytes(data_dir)
    except DirectoryInUse as error:
        raise in_use(data_dir) from error
    reclaimed = _run(data_dir, before, progress)
    after = stored_bytes(data_dir)
    output = Output()
    if is_json:
        output.json({"bytes_before": before, "bytes_after": after, "garbage_bytes": reclaimed})
    else:
        sizes = f"{human_bytes(before)} before, {human_bytes(after)} now"
        output.line(f"{data_dir}: {sizes}; {human_bytes(reclaimed)} was garbage".encode())
    output.finish()


def _run(data_dir: Path, size: int, progress: bool | None) -> int:
    from tailrace.engine.errors import EngineError
    from tailrace.engine.rocks import RocksStore
    from tailrace.engine.rocks.compaction import reclaim_all
    from tailrace.engine.rocks.options import FAMILIES

    try:
        store = RocksStore(data_dir)
    except EngineError as error:
        raise Failure(str(error)) from error
    try:
        try:
            with shown("compact", size, progress) as told:
                reclaimed = reclaim_all(store, lambda _: None)
                share = size // (len(FAMILIES) + 1)
                store.compact_all(lambda _: told.advance(share, 0))
        finally:
            # It flushes, and fails once more where the disk or a table does.
            store.close()
    except Exception as error:  # rocksdict raises plain Exception
        hint = "what is stored is as it was; free some space, and look with: tailrace check"
        raise Failure(f"{data_dir} cannot be compacted: {error}", hint=hint) from error
    return reclaimed
