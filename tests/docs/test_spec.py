"""Every section of the specification that code, tests or docs cite exists in `docs/spec/`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.server import REPO_ROOT

SPEC = REPO_ROOT / "docs" / "spec"
CITING = ("src", "docs", "tests", "benchmarks", "tools", "deploy")
SUFFIXES = {".py", ".md", ".js", ".css", ".html", ".conf", ".toml"}
NOT_OURS = {"node_modules", "spec"}
# An RFC is cited by its own name: "RFC 6750 §3".
_CITATION = re.compile(r"(RFC\s+\d+,?[\s#]+)?(X?)§(\d+(?:\.\d+)*)")


def sections(file: str, heading: str) -> set[str]:
    """The numbers of a document's headings."""
    return set(re.findall(heading, (SPEC / file).read_text(), re.MULTILINE))


def citing_files() -> Iterator[Path]:
    for top in CITING:
        for directory, below, names in os.walk(REPO_ROOT / top):
            below[:] = [name for name in below if name not in NOT_OURS]
            yield from (Path(directory, name) for name in names if Path(name).suffix in SUFFIXES)
    yield from REPO_ROOT.glob("*.md")


def test_every_cited_section_exists() -> None:
    headings = {
        "": sections("durable-streams-protocol.md", r"^#+ (\d+(?:\.\d+)*)\. "),
        "X": sections("extensions.txt", r"^(\d+(?:\.\d+)*)\. [A-Z]"),
    }
    assert {"5.2.1", "12.2"} <= headings[""]
    assert {"1.1", "3.4", "5"} <= headings["X"]
    cited = 0
    unknown = []
    for path in citing_files():
        for rfc, document, number in _CITATION.findall(path.read_text()):
            if rfc:
                continue
            cited += 1
            if number not in headings[document]:
                unknown.append(f"{path.relative_to(REPO_ROOT)}: {document}§{number}")
    assert cited > 100
    assert unknown == []
