"""
A table whose writer is killed at each of its steps in turn; run as a process of its own.

    python -m tests.spark.tables.kills FORMAT commit|compact|retype DIRECTORY

Each time a fork of this process works on a copy of the same table and ends itself by SIGKILL at
one step; another fork then looks at what is there, does the same work again, and looks again.
The libraries have threads, so they are used in forks only, never in this process itself.
"""

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tests.spark.tables.other_readers import (
    column_types,
    commit,
    compact,
    new_table,
    read,
    rows,
    visible_files,
)

# Imported once, for all forks.
LIBRARIES = {
    "parquet": ("pyarrow.dataset",),
    "delta": ("pyarrow.dataset", "deltalake"),
    "iceberg": ("pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "pyspark.sql.pandas.types"),
}
BEFORE = rows(0, 2) + rows(1, 2)
AFTER = {"commit": BEFORE + rows(2, 2), "compact": BEFORE, "retype": BEFORE + rows(2, 2)}


def in_fork(work: Callable[[], None]) -> int:
    """Run something in a fork; its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def prepare(format: str, path: Path) -> None:
    table = new_table(format, path)
    commit(table, 0, rows(0, 2))
    commit(table, 1, rows(1, 2))


def change(format: str, action: str, path: Path, at: Callable[[str], None] | None = None) -> None:
    table = new_table(format, path, at)
    if action == "compact":
        compact(table)
    else:
        # Numbers of messages become doubles: everything is written again first.
        commit(table, 2, rows(2, 2), wide=action == "retype")


def killed_at(number: int) -> Callable[[str], None]:
    steps = []

    def at(step: str) -> None:
        steps.append(step)
        if len(steps) > number:
            os.kill(os.getpid(), signal.SIGKILL)

    return at


def check(format: str, action: str, path: Path) -> None:
    table = new_table(format, path)
    if format != "parquet":
        # Their readers never see half of a change, not even before anyone has cleaned up.
        assert read(table) in (BEFORE, AFTER[action])
    table.committed(0)
    assert read(table) in (BEFORE, AFTER[action]), "after recovery"
    change(format, action, path)
    assert read(table) == AFTER[action], "after the same again"
    assert table.committed(2) == (action != "compact")
    assert column_types(table)["message"] == ("double" if action == "retype" else "long")
    names = {file.path for file in table.files()}
    replaced = action != "commit" and format != "parquet"
    assert names <= visible_files(path) if replaced else names == visible_files(path)
    assert len(names) == {"commit": 6, "compact": 2, "retype": 4}[action]
    assert not (path / "_tailrace" / "journal.json").exists()
    assert not (path / "_tailrace" / "staging").exists()


def run(format: str, action: str, directory: Path) -> int:
    """Kill at the first step, the second, …, until there is none left; how many there were."""
    for module in LIBRARIES[format]:
        import_module(module)
    path, kept = directory / "table", directory / "kept"
    assert in_fork(lambda: prepare(format, path)) == 0
    path.rename(kept)
    for number in range(1000):
        # At the same place each time: Iceberg keeps absolute paths.
        shutil.copytree(kept, path)
        ended = in_fork(lambda n=number: change(format, action, path, killed_at(n)))  # type: ignore[misc]
        assert ended in (0, -signal.SIGKILL), f"step {number}: exit {ended}"
        assert in_fork(lambda: check(format, action, path)) == 0, f"after a kill at step {number}"
        if ended == 0:
            return number
        shutil.rmtree(path)
    raise AssertionError("it never ended")


if __name__ == "__main__":
    sys.stdout.write(f"{run(sys.argv[1], sys.argv[2], Path(sys.argv[3]))}\n")
