"""`import` and `export`: files of NDJSON, there and back."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run

LINES = [b'{"a": 1.10}', b"[1, 2]", '"é"'.encode(), b"null", b"1e400", b'{"b":{}}']


def test_there_and_back_every_byte(run: Run, name: str, tmp_path: Path) -> None:
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


def test_a_bad_line_ends_it_and_is_named(run: Run, name: str, tmp_path: Path) -> None:
    """Nothing of it or after it is stored, everything before it is."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("1\n2\n")
    bad.write_text("3\noops\n4\n")
    done = run("import", str(good), str(bad), name, "--create")
    assert done.code == 1
    first, hint = done.err.splitlines()
    assert first.startswith(f"tailrace: {bad}:2 is not JSON: ")
    assert first.endswith("3 messages before it stored")
    assert hint.endswith("--skip-bad")
    assert run("read", name).lines == ["1", "2", "3"]


def test_bad_lines_can_be_left_out(run: Run, name: str) -> None:
    text = b"1\noops\n\xff\n2\nNaN\n"
    done = run("import", "-", name, "--create", "--skip-bad", stdin=text)
    assert done.code == 0
    assert done.err == "tailrace: 3 lines are not JSON, and were left out\n"
    assert run("read", name).lines == ["1", "2"]


def test_progress_can_be_asked_for(run: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1\n2\n")
    done = run("import", str(file), name, "--create", "--progress")
    assert done.err.splitlines()[-1].startswith("import: 4 B of 4 B, 2 messages, ")
    done = run("export", name, str(tmp_path / "b"), "--progress")
    assert ", 2 messages, " in done.err.splitlines()[-1]


def test_import_is_for_streams_of_json(run: Run, name: str) -> None:
    run("create", name)
    done = run("import", "-", name, stdin=b"1\n")
    assert (done.code, "is text/plain, not JSON" in done.err) == (4, True)


def test_files_that_are_not_there(run: Run, name: str, tmp_path: Path) -> None:
    """Seen before anything is created or sent."""
    good, missing = tmp_path / "good", tmp_path / "missing"
    good.write_text("1\n")
    done = run("import", str(good), str(missing), name, "--create")
    assert (done.code, "No such file" in done.err) == (1, True)
    assert run("head", name).code == 3
    run("create", name)
    assert run("append", name, "--file", str(missing)).code == 1
    assert run("export", name, str(missing / "x")).code == 1


def test_export_of_bytes_and_from_an_offset(run: Run, name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("create", name)
    offset = run("append", name, "abc", "--print-offset").text.strip()
    run("append", name, stdin=b"d\n\xff")
    assert run("export", name, str(out)).code == 0
    assert out.read_bytes() == b"abcd\n\xff"
    assert run("export", name, str(out), "--offset", offset).code == 0
    assert out.read_bytes() == b"d\n\xff"


def test_an_export_that_fails_leaves_what_was_there(run: Run, name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    run("create", name)
    assert run("export", name, str(out), "--offset", "nonsense").code == 1
    assert out.read_text() == "before"
    assert list(tmp_path.iterdir()) == [out]
