"""
A database, opened without changing anything in its directory.

Even a read-only RocksDB writes to its directory: a log of its own, and its Python library a file of
settings. So it opens a temporary directory with links to the files of the database and, of
a damaged write-ahead log, a copy of what comes before the damage.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocksdict import AccessType, Cache, Options, Rdict

from tailrace.engine.rocks.options import FAMILIES, family_options
from tailrace.exceptions import ExitCode, TailraceError

__all__ = ["DirectoryInUse", "OlderFormat", "held", "opened"]

LOCK: Final = "LOCK"
_CONFIG: Final = "rocksdict-config.json"
_CACHE_BYTES: Final = 32 << 20


class DirectoryInUse(TailraceError):
    """A server uses this directory."""

    message = "{directory} is in use by a running server"
    exit_code = ExitCode.CONFLICT
    hint = "stop it first, or use a backup of it: tailrace backup FILE"
    directory: Path


class OlderFormat(TailraceError):
    """The database is of an older version and lacks column families."""


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Lock a directory, as RocksDB does. Raises DirectoryInUse if a server uses it."""
    number = _open_lock(directory / LOCK)
    if number is None:
        # Just restored: no server has used it yet, so there is no file to lock.
        yield
        return
    try:
        shared = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        try:
            fcntl.lockf(number, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            raise DirectoryInUse(directory) from error
        yield
    finally:
        os.close(number)


def _open_lock(lock: Path) -> int | None:
    for flags in (os.O_RDWR, os.O_RDONLY):
        try:
            return os.open(lock, flags | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError:
            # Not writable for us, or on a read-only disk: a shared lock suffices.
            continue
    return None


@contextmanager
def opened(directory: Path, cut: Mapping[str, int]) -> Iterator[dict[str, Rdict]]:
    """
    The column families of a database, read-only.

    `cut` has the offset of the damage of each damaged write-ahead log.

    Raises:
        OlderFormat: It lacks some of them.
        Exception: It cannot be opened.
    """
    with tempfile.TemporaryDirectory(prefix="tailrace-check-") as name:
        view = Path(name)
        for path in directory.iterdir():
            if path.name in cut:
                os.truncate(shutil.copyfile(path, view / path.name), cut[path.name])
            elif path.name == _CONFIG:
                shutil.copyfile(path, view / path.name)
            elif path.suffix in (".sst", ".blob", ".log") or path.name.startswith(
                ("CURRENT", "MANIFEST-")
            ):
                (view / path.name).symlink_to(path.absolute())
        if not set(FAMILIES) <= set(Rdict.list_cf(str(view))):
            raise OlderFormat
        cache = Cache(_CACHE_BYTES)
        families = {name: _options(name, cache) for name in FAMILIES}
        access = AccessType.read_only(False)
        database = Rdict(str(view), _options("default", cache), families, access)
        try:
            found = {name: database.get_column_family(name) for name in FAMILIES}
            yield {"default": database, **found}
        finally:
            database.close()


def _options(name: str, cache: Cache) -> Options:
    options = family_options(name, cache)
    options.create_if_missing(False)
    options.create_missing_column_families(False)
    return options
