"""
README and docs are complete and true, and every example in them runs.

Goal: every setting, header, error code and command is documented, and does what the docs say.
Method: compare the docs with the tables that the code itself uses, and run every example
unchanged, except for the port.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace import client
from tailrace.client import errors
from tailrace.protocol.errors import Refusal
from tailrace.server import headers
from tailrace.server.settings import load_settings, option_name, settings_table
from tailrace.spark.source.columns import COLUMNS, SNAPSHOT
from tests.conformance.test_conformance import SLIDING_TESTS, SUITE_TESTS
from tests.support.server import REPO_ROOT, ServerProcess
from tools import api_reference, options_table

DOCS = sorted([*REPO_ROOT.glob("*.md"), *(REPO_ROOT / "docs").rglob("*.md")])
ADDRESS = "127.0.0.1:4437"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def doc(name: str) -> str:
    return (REPO_ROOT / name).read_text()


def examples(name: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page, as (language, text)."""
    return [(match[1], match[2]) for match in _FENCE.finditer(doc(name))]


def refusals() -> set[type[Refusal]]:
    """All refusals that the package defines."""
    for module in pkgutil.walk_packages(tailrace.__path__, "tailrace."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def below(base: type[Refusal]) -> Iterator[type[Refusal]]:
        for refusal in base.__subclasses__():
            yield refusal
            yield from below(refusal)

    # Neither those of tests, which may have run before in this process, nor abstract ones.
    return {
        refusal
        for refusal in below(Refusal)
        if refusal.__module__.startswith("tailrace.") and "code" in vars(refusal)
    }


def server_of_session(session: int) -> int:
    """The process id of the server in the session of `make`."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if command[1:3] and command[1].endswith(b"/tailrace"):
                return int(entry.name)
    raise AssertionError("no server was started")


RUNNERS = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


@pytest.mark.parametrize(
    ("page", "languages"),
    [
        ("README.md", {"sh", "python"}),
        pytest.param("docs/guides/snapshots.md", {"sh", "python"}, marks=pytest.mark.slow),
        pytest.param("docs/guides/client.md", {"python"}, marks=pytest.mark.slow),
        pytest.param("docs/guides/producers.md", {"python"}, marks=pytest.mark.slow),
        pytest.param("docs/guides/tailing.md", {"python"}, marks=pytest.mark.slow),
        pytest.param("docs/guides/subscriptions.md", {"sh", "python"}, marks=pytest.mark.slow),
        pytest.param("docs/guides/limits.md", {"sh"}, marks=pytest.mark.slow),
        pytest.param("docs/operations.md", {"sh"}, marks=pytest.mark.slow),
        pytest.param(
            "docs/guides/spark.md",
            {"sh", "python"},
            marks=[pytest.mark.slow, pytest.mark.timeout(400)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_example_of_a_page_prints_the_output_shown(
    page: str, languages: set[str], tmp_path: Path
) -> None:
    """Runs them in order on one server. A block without output after it must print nothing."""
    blocks = examples(page)
    # The README is written for the checkout. Other pages may leave files behind.
    directory = REPO_ROOT if page == "README.md" else tmp_path
    search_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = [index for index, (language, _) in enumerate(blocks) if language in languages]
    assert run, "the page has no example"
    with ServerProcess(tmp_path / "data") as server:
        for index in run:
            language, text = blocks[index]
            done = subprocess.run(
                [*RUNNERS[language], text.replace(ADDRESS, f"127.0.0.1:{server.port}")],
                cwd=directory,
                env={**os.environ, "PATH": search_path},
                capture_output=True,
                text=True,
                timeout=180,
            )
            assert done.returncode == 0, done.stderr
            following = blocks[index + 1 :][:1]
            expected = following[0][1] if following and following[0][0] == "text" else ""
            assert done.stdout.strip() == expected.strip(), text


def test_make_serve_of_the_readme_serves(tmp_path: Path) -> None:
    """`make serve` as in the README, except for the port and the data directory."""
    command, *_ = [text for language, text in examples("README.md") if language == "console"]
    assert command.strip() == "make serve"
    flags = f"--port 0 --log-format json --data-dir {tmp_path / 'data'}"
    with subprocess.Popen(
        ["make", "serve", f"ARGS={flags}"],
        cwd=REPO_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                event = json.loads(line)
                if event["event"] == "listening":
                    os.kill(server_of_session(process.pid), signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def test_the_asgi_example_of_the_readme_serves_streams(tmp_path: Path) -> None:
    (code,) = [text for _, text in examples("README.md") if "FastAPI" in text]
    (tmp_path / "readme_app.py").write_text(code)
    check = """
import asyncio
from readme_app import app

async def call(method, path):
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(),
             "root_path": "", "scheme": "http", "query_string": b"", "http_version": "1.1",
             "headers": [(b"host", b"test")]}
    messages = []
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}
    async def send(message):
        messages.append(message)
    await app(scope, receive, send)
    return messages[0]["status"], dict(messages[0]["headers"])

async def main():
    async with app.router.lifespan_context(app):
        status, headers = await call("PUT", "/streams/v1/stream/a")
        assert status == 201, status
        assert headers[b"location"] == b"http://test/streams/v1/stream/a", headers

asyncio.run(main())
"""
    subprocess.run(
        [sys.executable, "-c", check],
        cwd=tmp_path,
        check=True,
        timeout=60,
        env={"PYTHONPATH": str(tmp_path), "TAILRACE_DATA_DIR": str(tmp_path / "data")},
    )


def test_the_settings_file_example_loads(tmp_path: Path) -> None:
    (text,) = [text for language, text in examples("docs/settings.md") if language == "toml"]
    file = tmp_path / "tailrace.toml"
    file.write_text(text)
    settings = load_settings(environ={}, file=file)
    assert settings.port == 9000
    assert settings.ttl == "sliding"


def test_the_error_example_is_the_body_of_that_error() -> None:
    (text,) = [text for language, text in examples("docs/errors.md") if language == "json"]
    example = json.loads(text)
    (refusal,) = [item for item in refusals() if item.code == example["code"]]
    made = refusal(4, 6)
    assert (made.status, made.title, made.detail) == (
        example["status"],
        example["title"],
        example["detail"],
    )


@pytest.mark.parametrize("item", settings_table(), ids=lambda item: item.name)
def test_every_setting_is_documented_with_its_default(item: object) -> None:
    name = item.name  # type: ignore[attr-defined]
    default = item.default  # type: ignore[attr-defined]
    shown = "" if default == "" else f"`{default}` "
    row = f"| `{option_name(name)}` | `TAILRACE_{name.upper()}` | {shown}|"
    assert row in doc("docs/settings.md")


def test_every_flag_of_serve_is_documented() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "serve", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    flags = set(re.findall(r"--[a-z-]+", done.stdout)) - {"--help"}
    documented = set(re.findall(r"`(--[a-z-]+)`", doc("docs/settings.md")))
    assert flags == documented


def test_every_error_code_is_documented_with_its_status() -> None:
    documented = set(re.findall(r"^\| (\d{3}) \| `([a-zA-Z_-]+)` \|", doc("docs/errors.md"), re.M))
    assert documented == {(str(item.status), item.code) for item in refusals()}


def test_every_status_of_an_error_is_in_the_reference() -> None:
    page = doc("docs/http.md")
    for refusal in refusals():
        assert f"`{refusal.status}`" in page, refusal


def test_every_header_is_documented() -> None:
    page = doc("docs/http.md")
    names = [
        value.decode()
        for name, value in vars(headers).items()
        if name.isupper() and isinstance(value, bytes) and name not in ("TRUE", "FALSE")
    ]
    assert len(names) > 10
    for name in [*names, *(name.decode() for name, _ in headers.COMMON)]:
        assert f"`{name}" in page, name


def test_the_tests_that_fail_with_the_default_ttl_are_listed() -> None:
    page = doc("docs/conformance.md")
    group = "TTL Expiration Behavior "
    for name in SLIDING_TESTS:
        assert f"`{name.removeprefix(group)}`" in page
    assert f"{SUITE_TESTS} of {SUITE_TESTS}" in page


def test_the_api_reference_is_generated_from_the_docstrings() -> None:
    """`make docs` writes it."""
    assert doc("docs/api.md") == api_reference.page()


def test_the_table_of_spark_options_is_generated_from_the_code() -> None:
    """`make docs` writes it."""
    page = doc("docs/spark.md")
    assert page == options_table.page(page)


def test_every_spark_column_is_documented() -> None:
    page = doc("docs/spark.md")
    assert [name for name in (*COLUMNS, SNAPSHOT) if f"`{name}`" not in page] == []


def test_every_public_name_of_the_client_is_in_the_reference() -> None:
    page = doc("docs/api.md")
    assert [name for name in client.__all__ if f"`{name}`" not in page] == []


def test_every_error_of_the_client_is_in_its_guide() -> None:
    guide = doc("docs/guides/client.md")
    assert [name for name in errors.__all__ if name != "refusal" and f"`{name}`" not in guide] == []


def test_every_decision_has_a_title_a_status_and_a_row_in_the_index() -> None:
    directory = REPO_ROOT / "docs" / "decisions"
    index = (directory / "README.md").read_text()
    pages = "".join(page.read_text() for page in DOCS)
    decisions = sorted(directory.glob("0*.md"))
    for at, decision in enumerate(decisions, start=1):
        head = re.match(
            r"# (\d{4}): (.+)\n\nStatus: (accepted|superseded by \d{4}), (\d{4}-\d\d-\d\d)",
            decision.read_text(),
        )
        assert head, decision.name
        number, title, status, date = head.groups()
        assert decision.name.startswith(f"{at:04d}-") and number == f"{at:04d}"
        assert f"| [{number}]({decision.name}) | {title} | {status} | {date} |" in index
        assert f"decisions/{decision.name}" in pages, f"no page links {decision.name}"
    assert index.count("\n| [") == len(decisions)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", item.lower()).replace(" ", "-") for item in headings}


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for page in DOCS:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
            if target.startswith(("http://", "https://")):
                continue
            file = page.parent / target if target else page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{page.relative_to(REPO_ROOT)}: {target}#{anchor}")
    assert broken == []


def test_the_documented_record_layout_matches_the_codec() -> None:
    """Offset and size of each field of the fixed part of a record."""
    import struct

    from tailrace.engine.codec import HEAD

    rows = re.findall(r"^\| (\d+) \| (\d+) \| ", doc("docs/storage.md"), re.MULTILINE)
    at = 0
    sizes = [struct.calcsize("<" + kind) for kind in HEAD.format.lstrip("<")]
    for (offset, size), expected in zip(rows, sizes, strict=True):
        assert (int(offset), int(size)) == (at, expected)
        at += expected
    assert f"| {HEAD.size} | |" in doc("docs/storage.md")


def test_the_published_clients_are_listed_with_the_versions_that_are_tested() -> None:
    page = doc("docs/conformance.md")
    packages = json.loads(doc("tests/ecosystem/package.json"))["devDependencies"]
    for name, version in packages.items():
        if name.startswith("@durable-streams/"):
            assert re.search(rf"^\| npm `{name}`.*\| {version} \|$", page, re.MULTILINE), name
    found = re.search(r'"durable-streams==(.*)"', doc("pyproject.toml"))
    assert found is not None
    assert f"| PyPI `durable-streams` | {found[1]} |" in page
