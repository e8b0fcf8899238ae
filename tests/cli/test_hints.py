"""Commands in hints work as they are printed."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.cli.conftest import Run
from tests.support.server import ServerProcess

NOWHERE = "http://127.0.0.1:1"


def hinted(text: str) -> list[str]:
    """The arguments of the command at the end of a hint."""
    return shlex.split(text.strip().rpartition("tailrace ")[2])


def test_a_hint_is_quoted_and_works(run: Run, bucket: str) -> None:
    for path in ("a b", "it's", "-x", "$HOME"):
        words = hinted(run("head", "-b", bucket, "--", path).err)
        assert run(*words).code == 0
        assert run("head", "-b", bucket, "--", path).code == 0


def test_a_hint_has_the_server_and_no_token(run: Run, server: ServerProcess, name: str) -> None:
    done = run("head", name, "--url", server.url, "-H", "Authorization: secret", url=NOWHERE)
    assert hinted(done.err) == ["create", name, "--url", server.url, "-H", "Authorization: …"]
    assert "--url" not in run("head", name).err


def test_a_hint_for_a_missing_json_stream(run: Run, name: str) -> None:
    for args in (("import", "-", name), ("append", "--json", name, "1")):
        done = run(*args)
        assert (done.code, "--create" in done.err) == (3, True)
        assert hinted(done.err) == ["create", name, "--json"]
    assert run(*hinted(done.err)).code == 0
    assert run("append", "--json", name, "1").code == 0


def test_a_hint_for_import_into_another_type(run: Run, bucket: str, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_text("1\n")
    run("create", "s", "-b", bucket)
    done = run("import", str(file), "s", "-b", bucket)
    assert run(*hinted(done.err)).code == 0
    assert run("read", "s", "-b", bucket).out == b"1\n"


def test_no_hint_to_create_what_is_to_be_removed(run: Run, bucket: str) -> None:
    for args in (("rm", "s"), ("rm", "s", "-b", bucket), ("bucket", "rm", "nowhere")):
        done = run(*args)
        assert (done.code, len(done.err.splitlines())) == (3, 1)


def test_a_missing_bucket_is_reported_as_such(run: Run) -> None:
    done = run("read", "s", "-b", "nowhere")
    assert (done.code, done.err.splitlines()) == (
        3,
        [
            "tailrace: nowhere/s: no such bucket (404)",
            "hint: create it first: tailrace bucket create nowhere",
        ],
    )


def test_hints_for_buckets_that_exist_or_have_streams(run: Run, bucket: str) -> None:
    assert "--exist-ok" in run("bucket", "create", bucket).err
    run("create", "s", "-b", bucket)
    done = run("bucket", "rm", bucket)
    assert (done.code, "GET" in done.err) == (4, False)
    assert run(*hinted(done.err)).lines == ["s"]


def test_an_invalid_offset_of_a_snapshot(run: Run, bucket: str) -> None:
    run("create", "s", "-b", bucket)
    for offset in ("bogus", "now"):
        done = run("snapshot", "put", "s", "-", "-b", bucket, "--offset", offset, stdin=b"x")
        assert (done.code, "-1" in done.err) == (2, False)
