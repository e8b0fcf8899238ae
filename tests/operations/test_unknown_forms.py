"""`check` never calls damaged what a newer RocksDB may have written: it is not checked."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import pytest

from tailrace.engine.rocks import check as check_module
from tailrace.engine.rocks import tables
from tailrace.engine.rocks.findings import Damage, NotChecked
from tailrace.engine.rocks.logs import LogDamage, check_log
from tailrace.engine.rocks.tables import check_table
from tests.operations.building import check, no_damage, run
from tests.operations.test_torn_log import log_of

UNKNOWN_KIND = 130
FOOTER_BYTES = 53
"""The version is 12 bytes before the end, the kind of checksum is the first byte."""


def log_record(kind: int, data: bytes, *, is_valid: bool = True) -> bytes:
    check = google_crc32c.value(bytes([kind]) + data)
    masked = ((check >> 15 | check << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked if is_valid else masked ^ 1, len(data), kind) + data


def table_of(directory: Path) -> Path:
    return max(directory.glob("*.sst"), key=lambda path: path.stat().st_size)


def test_a_log_record_of_an_unknown_kind_is_not_checked(copied: Path) -> None:
    log = log_of(copied)
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(log_record(UNKNOWN_KIND, b"of a newer version"))
    (remark,) = no_damage(copied).remarks
    assert (remark.file, remark.offset) == (log.name, size)
    done = run("check", "--data-dir", copied)
    assert (done.returncode, done.stderr) == (0, b"")
    expected = f"{log.name}, byte {size}: not checked: a record of the unknown kind {UNKNOWN_KIND}"
    assert expected in done.stdout.decode().splitlines()


def test_which_kinds_of_log_records_are_unknown(tmp_path: Path) -> None:
    """Kinds of recycled logs are known, and never written: they are damage."""
    log = tmp_path / "000001.log"
    for kind in range(256):
        log.write_bytes(log_record(1, b"first") + log_record(kind, b"second"))
        if kind == 1:
            check_log(log, lambda _: None)
        elif kind in (0, 2, 3, 4, 5, 6, 7, 8, 11):
            with pytest.raises(LogDamage):
                check_log(log, lambda _: None)
        else:
            with pytest.raises(NotChecked):
                check_log(log, lambda _: None)
    log.write_bytes(log_record(1, b"first", is_valid=False))
    with pytest.raises(LogDamage):
        check_log(log, lambda _: None)


def test_a_table_of_an_unknown_form_is_not_checked(copied: Path) -> None:
    table = table_of(copied)
    data = table.read_bytes()
    check_table(table, lambda _: None)
    for at, value in ((-12, 7), (-12, 5), (-8, 0), (-FOOTER_BYTES, 1)):
        changed = bytearray(data)
        changed[at] = value
        table.write_bytes(changed)
        with pytest.raises(NotChecked):
            check_table(table, lambda _: None)
    table.write_bytes(b"")
    with pytest.raises(Damage):
        check_table(table, lambda _: None)


@pytest.mark.parametrize("constant", ["_FORMAT", "_LZ4"])
def test_the_contents_are_checked_if_the_tables_are_not(
    copied: Path, monkeypatch: pytest.MonkeyPatch, constant: str
) -> None:
    """As if RocksDB were newer than this module: with another format, or another compression."""
    monkeypatch.setattr(tables, constant, 99)
    checked = no_damage(copied)
    assert checked.records > 0
    remarks = [remark for remark in checked.remarks if remark.file.endswith(".sst")]
    assert remarks and all(remark.remark.startswith("not checked: ") for remark in remarks)


def test_unknown_settings_are_not_checked_and_missing_ones_are_damage(copied: Path) -> None:
    path = copied / "rocksdict-config.json"
    path.write_text('{"raw_mode": true, "prefix_extractors": {}, "new": 1}')
    (remark,) = [remark for remark in no_damage(copied).remarks if remark.file == path.name]
    assert remark.remark == "not checked: it has unknown settings"
    for text in ("", "{}", "[]", '{"raw_mode": 1}'):
        path.write_text(text)
        _, found = check(copied)
        assert [finding.file for finding in found][:1] == [path.name]
    assert check_module.Checked().remarks == []
