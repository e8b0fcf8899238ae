"""
`tailrace check`: whether a data directory is what was written to it. Nothing in it is changed.

First its files: CURRENT, the MANIFEST, the write-ahead logs, the tables and blob files that the
MANIFEST names, byte for byte by their checksums. Then what they say (`contents`).

Not looked at: RocksDB's own LOG files, LOCK, IDENTITY and OPTIONS, which are not read to serve;
tables and blob files that nothing refers to, and files of snapshots that are garbage or were never
published, which the next start removes.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tailrace.engine.rocks.compaction import stored_bytes
from tailrace.engine.rocks.consistency import FORMAT, Contents
from tailrace.engine.rocks.findings import Finding, Note, Remark
from tailrace.engine.rocks.logs import LogDamage, read_log
from tailrace.engine.rocks.manifest import LiveFiles, live_files
from tailrace.engine.rocks.readonly import DirectoryInUse, OlderFormat, held, opened
from tailrace.engine.rocks.snapshot_files import SNAPSHOTS
from tailrace.engine.rocks.tables import FileDamage, check_blob_file, check_table

__all__ = ["Checked", "DirectoryInUse", "NoDatabase", "check", "total_bytes"]

Advance = Callable[[int], object]

_CURRENT: Final = re.compile(rb"MANIFEST-\d{6,}\n")
_VIEW: Final = re.compile(r"\S*/tailrace-check-[^/\s]+/")
_PLACE: Final = re.compile(r"(\d{6,}\.(?:sst|blob))(?: offset (\d+))?")
_TORN: Final = "the end of the log was being written when the server died"
_CONFIG: Final = {"raw_mode": True, "prefix_extractors": {}}


class NoDatabase(Exception):
    """There is nothing to check in this directory; the message says so."""


class Checked(msgspec.Struct):
    """What was looked at, and what was found."""

    findings: int = 0
    streams: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    contents: bool = False
    """Whether the streams could be looked at, and not the files alone."""
    remarks: list[Remark] = []
    """What is no damage, and worth knowing."""


def total_bytes(directory: Path) -> int:
    """About how much `check` will read, for a bar of progress: files, and then what they say."""
    snapshots = sum(path.stat().st_size for path in (directory / SNAPSHOTS).glob("*"))
    return 2 * stored_bytes(directory) - snapshots


def check(directory: Path, storage_format: int, note: Note, advance: Advance) -> Checked:
    """
    Look at all of a data directory; `note` is told of each finding.

    Raises:
        DirectoryInUse: A server works with it.
        NoDatabase: There is none, or one of a newer format.
    """
    if not (directory / "CURRENT").is_file() and not any(directory.glob("MANIFEST-*")):
        raise NoDatabase(f"{directory} is no data directory of tailrace")
    with held(directory):
        run = _Run(directory, storage_format, note, advance)
        run.check()
        return run.checked


class _Run:
    def __init__(self, directory: Path, storage_format: int, note: Note, advance: Advance) -> None:
        self.checked = Checked()
        self._directory = directory
        self._storage_format = storage_format
        self._told = note
        self._advance_by = advance
        # Where the first damage of each write-ahead log is.
        self._cut: dict[str, int] = {}

    def check(self) -> None:
        self._check_config()
        live = self._read_manifest()
        self._check_logs()
        if live is None:
            self._note(Finding("without its MANIFEST the streams cannot be looked at"))
            return
        for number, size in sorted(live.tables.items()):
            self._check_file(f"{number:06d}.sst", size, check_table)
        for number, family in sorted(live.blobs.items()):
            look = partial(check_blob_file, family=family)
            self._check_file(f"{number:06d}.blob", None, look)
        self._check_contents()

    def _check_config(self) -> None:
        path = self._directory / "rocksdict-config.json"
        try:
            fits = msgspec.json.decode(path.read_bytes()) == _CONFIG
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            fits = False
        if not fits:
            self._note(Finding("it is not what was written", file=path.name))

    def _read_manifest(self) -> LiveFiles | None:
        """The files that the database is made of, if that can be known."""
        try:
            current = (self._directory / "CURRENT").read_bytes()
        except OSError as error:
            self._note(Finding(f"it cannot be read: {error.strerror}", file="CURRENT"))
            return None
        path = self._directory / current.decode("latin-1").strip("\n\0").replace("/", "_")
        if not _CURRENT.fullmatch(current) or not path.is_file():
            self._note(Finding("it names no MANIFEST that is there", file="CURRENT"))
            return None
        self.checked.files += 2
        try:
            return live_files(read_log(path, self._advance))
        except LogDamage as damage:
            self._note(Finding(damage.reason, file=path.name, offset=damage.at))
        except (ValueError, IndexError) as error:
            self._note(Finding(f"it cannot be read: {error}", file=path.name))
        return None

    def _check_logs(self) -> None:
        paths = sorted(self._directory.glob("*.log"), key=_number)
        # A server that starts makes a new one, before it has done with the old.
        written = [path for path in paths if path.stat().st_size]
        for path in paths:
            self._check_log(path, is_newest=path in written[-1:])

    def _check_log(self, path: Path, *, is_newest: bool) -> None:
        self.checked.files += 1
        try:
            for _ in read_log(path, self._advance):
                pass
        except LogDamage as damage:
            lost = damage.size - damage.at
            self._cut[path.name] = damage.at
            if damage.torn and is_newest:
                text = f"{_TORN}: {lost} bytes, never acknowledged; the next start drops them"
                self.checked.remarks.append(Remark(text, path.name, damage.at))
                return
            problem = f"{damage.reason}: {lost} bytes from here on are lost to a server"
            self._note(Finding(problem, file=path.name, offset=damage.at))

    def _check_file(
        self, name: str, size: int | None, look: Callable[[Path, Advance], None]
    ) -> None:
        path = self._directory / name
        self.checked.files += 1
        try:
            if size is not None and path.stat().st_size != size:
                raise FileDamage(0, f"it has {path.stat().st_size} bytes, and should have {size}")
            look(path, self._advance)
        except FileDamage as damage:
            self._note(Finding(damage.reason, file=name, offset=damage.at))
        except OSError as error:
            self._note(Finding(f"it cannot be read: {error.strerror}", file=name))

    def _check_contents(self) -> None:
        try:
            with opened(self._directory, self._cut) as families:
                stored = families["default"].get(FORMAT)
                self._check_format(stored)
                contents = Contents(self._directory, families, self._note, self._advance)
                contents.check()
                self.checked.streams, self.checked.records = contents.streams, contents.records
                self.checked.contents = True
        except NoDatabase:
            raise
        except OlderFormat as error:
            problem = "is of an older storage format: start a server on it once, which upgrades it"
            raise NoDatabase(f"{self._directory} {problem}") from error
        except Exception as error:  # rocksdict raises plain Exception
            self._note(Finding(f"the database cannot be opened: {error}"))

    def _check_format(self, stored: bytes | None) -> None:
        if stored is None or not stored.isdigit() or not 1 <= int(stored) <= self._storage_format:
            found = "no" if stored is None else f"the unknown {stored.decode(errors='replace')!r}"
            raise NoDatabase(f"{self._directory} has {found} storage format")

    def _advance(self, size: int) -> None:
        self.checked.bytes += size
        self._advance_by(size)

    def _note(self, finding: Finding) -> None:
        self.checked.findings += 1
        # RocksDB says where it read, and that is the view of it.
        problem = _VIEW.sub("", finding.problem)
        if not finding.file and (found := _PLACE.search(problem)):
            offset = int(found[2]) if found[2] else None
            finding = Finding(problem, found[1], finding.stream, offset)
        self._told(replace(finding, problem=problem))


def _number(path: Path) -> tuple[int, str]:
    return (int(path.stem) if path.stem.isdigit() else 0, path.name)
