"""
Files of a table: what is on disk after a crash, and whose turn it is to write.

Rule 1: a file is complete and synced before any journal names it.

Rule 2: a JSON file is replaced as a whole, by a rename: after a crash it is the old one or the
new one.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from tailrace.spark.tables.errors import PathUnsupported, TableBusy

__all__ = ["LOCK_WAIT_S", "alone", "local_path", "move", "read_json", "sync_file", "write_json"]

LOCK_WAIT_S: Final = 60.0
_LOCK_POLL_S: Final = 0.05


def local_path(text: str | Path) -> Path:
    """
    The directory that a path or a `file:` URL names.

    Raises:
        PathUnsupported: It lies elsewhere.
    """
    parts = urlsplit(str(text))
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    # `dbfs:/x` and `s3://b` are elsewhere; `a:b/c` would be a directory, and is more likely a slip.
    if parts.scheme or not str(text):
        raise PathUnsupported(str(text))
    return Path(text).absolute()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file as a whole; it is on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_file(path.parent)


def read_json(path: Path) -> dict[str, Any] | None:
    """What `write_json` wrote; None if there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    content: dict[str, Any] = json.loads(text)
    return content


def sync_file(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> bool:
    """Move a file over whatever has its new name; false if it is not there (any more)."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.replace(target)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def alone(lock: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """
    Hold a lock that ends with the process that holds it, however that ends.

    Raises:
        TableBusy: Another one held it all the time.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        deadline = time.monotonic() + wait_s
        while not _try_lock(file.fileno()):
            if time.monotonic() >= deadline:
                raise TableBusy(str(lock.parent.parent), wait_s)
            time.sleep(_LOCK_POLL_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
