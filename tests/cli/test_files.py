"""`import` and `export`: NDJSON files, and files that are special."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import Run

LINES = [b'{"a": 1.10}', b"[1, 2]", '"é"'.encode(), b"null", b"1e400", b'{"b":{}}']


def test_an_export_equals_the_import(run: Run, name: str, tmp_path: Path) -> None:
    first, second, out = tmp_path / "1.ndjson", tmp_path / "2.ndjson", tmp_path / "out.ndjson"
    first.write_bytes(b"".join(line + b"\n" for line in LINES) * 50)
    second.write_bytes(b"\n".join(LINES))
    assert run("import", str(first), str(second), name, "--create", "--close").code == 0
    done = run("export", name, str(out))
    assert (done.code, done.out, done.err) == (0, b"", "")
    assert out.read_bytes() == first.read_bytes() + second.read_bytes() + b"\n"
    assert sorted(tmp_path.iterdir()) == [first, second, out]
    assert "closed: true" in run("head", name).lines


def test_standard_input_and_output(run: Run, name: str) -> None:
    text = b'1\n\n  \n{"a": 2}\r\n3'
    assert run("import", "-", name, "--create", stdin=text).code == 0
    assert run("export", name, "-").lines == ["1", '{"a": 2}', "3"]


def test_an_import_ends_at_an_invalid_line(run: Run, name: str, tmp_path: Path) -> None:
    """Lines before it are stored, and none after it."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("1\n2\n")
    bad.write_text("3\noops\n4\n")
    done = run("import", str(good), str(bad), name, "--create")
    assert done.code == 1
    first, hint = done.err.splitlines()
    assert first.startswith(f"tailrace: {bad}:2 is not JSON: ")
    assert first.endswith("; stored before it: 3 messages")
    assert hint.endswith("--skip-bad")
    assert run("read", name).lines == ["1", "2", "3"]


def test_invalid_lines_can_be_skipped(run: Run, name: str) -> None:
    text = b"1\noops\n\xff\n2\nNaN\n"
    done = run("import", "-", name, "--create", "--skip-bad", stdin=text)
    assert done.code == 0
    assert done.err == "tailrace: skipped 3 lines that are not JSON\n"
    assert run("read", name).lines == ["1", "2"]


def test_import_needs_a_json_stream(run: Run, name: str) -> None:
    run("create", name)
    done = run("import", "-", name, stdin=b"1\n")
    assert (done.code, "is text/plain, not JSON" in done.err) == (4, True)


def test_files_that_do_not_exist(run: Run, name: str, tmp_path: Path) -> None:
    """It fails before anything is created or sent."""
    good, missing = tmp_path / "good", tmp_path / "missing"
    good.write_text("1\n")
    done = run("import", str(good), str(missing), name, "--create")
    assert (done.code, "No such file" in done.err) == (1, True)
    assert run("head", name).code == 3
    run("create", name)
    assert run("append", name, "--file", str(missing)).code == 1
    assert run("export", name, str(missing / "x")).code == 1


def test_export_of_bytes_from_an_offset(run: Run, name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("create", name)
    offset = run("append", name, "abc", "--print-offset").text.strip()
    run("append", name, stdin=b"d\n\xff")
    assert run("export", name, str(out)).code == 0
    assert out.read_bytes() == b"abcd\n\xff"
    assert run("export", name, str(out), "--offset", offset).code == 0
    assert out.read_bytes() == b"d\n\xff"


def test_an_export_that_fails_keeps_the_old_file(run: Run, name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    run("create", name)
    assert run("export", name, str(out), "--offset", "nonsense").code == 1
    assert out.read_text() == "before"
    assert list(tmp_path.iterdir()) == [out]


def test_half_a_surrogate_pair_is_imported(run: Run, name: str) -> None:
    text = b'20\n"\\ud800"\n21\n'
    done = run("import", "-", name, "--create", "--skip-bad", stdin=text)
    assert (done.code, done.err) == (0, "")
    assert run("read", name).lines == ["20", '"\\ud800"', "21"]


def test_a_byte_order_mark_is_skipped(run: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xef\xbb\xbf1\n2\n")
    assert run("import", str(file), str(file), name, "--create").code == 0
    assert run("read", name).lines == ["1", "2"] * 2


def test_a_directory_is_rejected_before_anything_is_sent(
    run: Run, name: str, tmp_path: Path
) -> None:
    good = tmp_path / "good"
    good.write_text("1\n")
    done = run("import", str(good), str(tmp_path), name, "--create")
    assert (done.code, done.err) == (1, f"tailrace: {tmp_path}: Is a directory\n")
    assert run("head", name).code == 3


@pytest.fixture
def exported(run: Run, name: str) -> str:
    run("append", name, "--create", "data")
    return name


def test_an_export_writes_through_a_link(run: Run, exported: str, tmp_path: Path) -> None:
    file, link, dangling = tmp_path / "file", tmp_path / "link", tmp_path / "dangling"
    file.write_text("before")
    link.symlink_to(file)
    dangling.symlink_to("new")
    assert run("export", exported, str(link)).code == 0
    assert run("export", exported, str(dangling)).code == 0
    assert link.is_symlink() and dangling.is_symlink()
    assert file.read_text() == (tmp_path / "new").read_text() == "data"


def test_an_export_writes_into_a_fifo(run: Run, exported: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # Open for reading as well, so that the export does not wait for a reader.
    end = os.open(fifo, os.O_RDWR)
    try:
        assert run("export", exported, str(fifo)).code == 0
        assert os.read(end, 100) == b"data"
    finally:
        os.close(end)
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert list(tmp_path.iterdir()) == [fifo]


def test_a_fifo_whose_reader_leaves_is_an_error(run: Run, name: str, tmp_path: Path) -> None:
    """Unlike for standard output. The stream is larger than the buffer of a pipe."""
    run("create", name)
    for _ in range(3):
        run("append", name, stdin=b"x" * 500_000)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def leave() -> None:
        with fifo.open("rb") as reader:
            reader.read(1)

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    done = run("export", name, str(fifo))
    thread.join(10)
    assert (done.code, done.err) == (1, f"tailrace: {fifo}: Broken pipe\n")


def test_an_export_keeps_the_mode_of_a_file(run: Run, exported: str, tmp_path: Path) -> None:
    file, part = tmp_path / "file", tmp_path / "file.part"
    file.write_text("before")
    file.chmod(0o640)
    part.write_text("another file")
    assert run("export", exported, str(file)).code == 0
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("data", 0o640)
    assert part.read_text() == "another file"


def test_an_export_to_a_directory(run: Run, exported: str) -> None:
    for directory in (".", "/", ""):
        done = run("export", exported, directory)
        assert (done.code, "is a directory" in done.err) == (2, True)
