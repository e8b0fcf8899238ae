"""
`tailrace check`: whether a data directory is what was written to it. Nothing in it is changed.

First the files that a scan through RocksDB does not verify, or not completely: the MANIFEST, the
write-ahead logs (`logs`) and the blocks of tables (`tables`). Then the contents (`consistency`), by
reading all streams through RocksDB, which verifies the checksums of what it reads, also of values
in blob files.

A form that is unknown here is not damage: it is reported as not checked.

Not read: RocksDB's own LOG files, LOCK, IDENTITY and OPTIONS, which are not needed to serve; files
and values that nothing refers to, which a start or a compaction removes without reading them.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace
from rocksdict import Rdict

from tailrace.engine.rocks.compaction import stored_bytes
from tailrace.engine.rocks.consistency import FORMAT, Consistency
from tailrace.engine.rocks.findings import Damage, Finding, NotChecked, Remark, Report
from tailrace.engine.rocks.logs import LogDamage, check_log
from tailrace.engine.rocks.readonly import DirectoryInUse, OlderFormat, held, opened
from tailrace.engine.rocks.snapshot_files import SNAPSHOTS
from tailrace.engine.rocks.tables import check_table
from tailrace.exceptions import ExitCode, TailraceError

__all__ = ["Checked", "DirectoryInUse", "NoDatabase", "check", "total_bytes"]

Advance = Callable[[int], object]

_CURRENT: Final = re.compile(rb"MANIFEST-\d{6,}\n")
_VIEW_PATH: Final = re.compile(r"\S*/tailrace-check-[^/\s]+/")
_FILE_AND_OFFSET: Final = re.compile(r"(\d{6,}\.(?:sst|blob))(?: offset (\d+))?")
_TORN: Final = "the end of the log was being written when the server died"
_CONFIG: Final = {"raw_mode": True, "prefix_extractors": {}}


class NoDatabase(TailraceError):
    """The directory has no database that can be checked."""

    message = "{directory} {problem}"
    exit_code = ExitCode.NOT_FOUND
    directory: Path
    problem: str


class Checked(msgspec.Struct):
    """What was read, and what was found."""

    findings: int = 0
    streams: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    contents: bool = False
    """Whether the streams were checked, and not only the files."""
    remarks: list[Remark] = []
    """What is not damage: a torn log, and what was not checked."""


def total_bytes(directory: Path) -> int:
    """About how much `check` will read, for a progress bar: files, and then their contents."""
    snapshots = sum(path.stat().st_size for path in (directory / SNAPSHOTS).glob("*"))
    return 2 * stored_bytes(directory) - snapshots


def check(directory: Path, storage_format: int, report: Report, advance: Advance) -> Checked:
    """
    Check a data directory; `report` is called with each finding.

    Raises:
        DirectoryInUse: A server uses it.
        NoDatabase: There is none, or one of another format.
    """
    if not (directory / "CURRENT").is_file() and not any(directory.glob("MANIFEST-*")):
        raise NoDatabase(directory, "is no data directory of tailrace")
    with held(directory):
        return _Run(directory, storage_format, report, advance).check()


class _Run:
    def __init__(
        self, directory: Path, storage_format: int, report: Report, advance: Advance
    ) -> None:
        self.checked = Checked()
        self._directory = directory
        self._storage_format = storage_format
        self._report_to = report
        self._advance_by = advance
        # Where the first damage of each write-ahead log is.
        self._cut: dict[str, int] = {}

    def check(self) -> Checked:
        self._check_config()
        is_whole = self._check_manifest()
        self._check_logs()
        if is_whole:
            self._check_database()
        else:
            self._report(Finding("without its MANIFEST the streams cannot be checked"))
        return self.checked

    def _check_config(self) -> None:
        path = self._directory / "rocksdict-config.json"
        try:
            config = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            config = {}
        if config.get("raw_mode") is not True:
            self._report(Finding("it is not what was written", file=path.name))
        elif config != _CONFIG:
            self._remark("not checked: it has unknown settings", path.name)

    def _check_manifest(self) -> bool:
        """Returns whether RocksDB can open it."""
        try:
            current = (self._directory / "CURRENT").read_bytes()
        except OSError as error:
            self._report(Finding(f"it cannot be read: {error.strerror}", file="CURRENT"))
            return False
        path = self._directory / current.decode("latin-1").strip("\n\0").replace("/", "_")
        if not _CURRENT.fullmatch(current) or not path.is_file():
            self._report(Finding("it names no MANIFEST that is there", file="CURRENT"))
            return False
        self.checked.files += 1
        # RocksDB takes a damaged end for the end of the file, and some damage it reads for ever.
        return self._check_file(path, check_log)

    def _check_logs(self) -> None:
        paths = sorted(self._directory.glob("*.log"), key=_number)
        # A server that starts creates a new log before it is done with the old one.
        newest = [path for path in paths if path.stat().st_size][-1:]
        for path in paths:
            self._check_file(path, check_log, may_be_torn=path in newest)

    def _check_file(
        self, path: Path, verify: Callable[[Path, Advance], None], *, may_be_torn: bool = False
    ) -> bool:
        self.checked.files += 1
        try:
            verify(path, self._advance)
        except NotChecked as unknown:
            self._remark(str(unknown), path.name, unknown.offset)
        except Damage as damage:
            problem = damage.reason
            if path.suffix == ".log":
                self._cut[path.name] = damage.offset
                lost = path.stat().st_size - damage.offset
                if may_be_torn and isinstance(damage, LogDamage) and damage.torn:
                    text = f"{_TORN}: {lost} bytes, never acknowledged; the next start drops them"
                    self._remark(text, path.name, damage.offset)
                    return False
                problem = f"{problem}: {lost} bytes from here on are lost to a server"
            self._report(Finding(problem, file=path.name, offset=damage.offset))
            return False
        except OSError as error:
            self._report(Finding(f"it cannot be read: {error.strerror}", file=path.name))
            return False
        return True

    def _check_database(self) -> None:
        try:
            with opened(self._directory, self._cut) as families:
                self._check_format(families["default"].get(FORMAT))
                self._check_tables(families["default"])
                contents = Consistency(self._directory, families, self._report, self._advance)
                contents.check()
                self.checked.streams, self.checked.records = contents.streams, contents.records
                self.checked.contents = True
        except NoDatabase:
            raise
        except OlderFormat as error:
            problem = "is of an older storage format: start a server on it once, which upgrades it"
            raise NoDatabase(self._directory, problem) from error
        except Exception as error:  # rocksdict raises plain Exception
            self._report(Finding(f"the database cannot be opened: {error}"))

    def _check_format(self, stored: bytes | None) -> None:
        if stored is None or not stored.isdigit() or not 1 <= int(stored) <= self._storage_format:
            found = "no" if stored is None else f"the unknown {stored.decode(errors='replace')!r}"
            raise NoDatabase(self._directory, f"has {found} storage format")

    def _check_tables(self, database: Rdict) -> None:
        # Of all column families.
        for file in sorted(database.live_files(), key=lambda file: file["name"]):
            self._check_file(self._directory / file["name"].lstrip("/"), check_table)

    def _advance(self, size: int) -> None:
        self.checked.bytes += size
        self._advance_by(size)

    def _remark(self, text: str, file: str, offset: int = 0) -> None:
        self.checked.remarks.append(Remark(text, file, offset))

    def _report(self, finding: Finding) -> None:
        self.checked.findings += 1
        # RocksDB names the path in the temporary directory.
        problem = _VIEW_PATH.sub("", finding.problem)
        if not finding.file and (found := _FILE_AND_OFFSET.search(problem)):
            offset = int(found[2]) if found[2] else None
            finding = Finding(problem, found[1], finding.stream, offset)
        self._report_to(replace(finding, problem=problem))


def _number(path: Path) -> tuple[int, str]:
    return (int(path.stem) if path.stem.isdigit() else 0, path.name)
