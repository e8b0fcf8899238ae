"""The architecture page and the glossary name files, directories and names that exist."""

from __future__ import annotations

import re

import pytest

from tests.support.server import REPO_ROOT

PACKAGE = REPO_ROOT / "src" / "tailrace"
# `server/headers.py` and `server/live/`, but not `/-/rows` or `/v1/stream/{path}`.
_PATH = re.compile(r"`(\w[\w./-]*(?:\.(?:py|md)|/))`")
_NAME = re.compile(r"`(\w+)` in\s+`([\w/]+\.py)`")
_TABLE = re.compile(r"^\| package \| content \|\n\|---\|---\|\n((?:\|.*\|\n)+)", re.MULTILINE)


def text_of(page: str) -> str:
    return (REPO_ROOT / "docs" / f"{page}.md").read_text()


@pytest.mark.parametrize("page", ["architecture", "glossary"])
def test_every_path_exists(page: str) -> None:
    text = text_of(page)
    # A row of a table of packages names its directory first, then what is in it.
    rows = [row for table in _TABLE.findall(text) for row in table.splitlines()]
    paths = [("", path) for path in _PATH.findall("\n".join(set(text.splitlines()) - set(rows)))]
    for row in rows:
        _, directory, content, _ = row.split("|")
        (parent,) = re.findall(r"`([^`]+)`", directory)
        paths.append(("", parent))
        paths += [(parent, path) for path in _PATH.findall(content)]
    assert len(paths) > 60
    unknown = []
    for parent, path in paths:
        candidates = [PACKAGE / path, REPO_ROOT / path, PACKAGE / parent / path]
        if not any(candidate.exists() for candidate in candidates):
            unknown.append(f"{parent} {path}".strip())
    assert unknown == []


@pytest.mark.parametrize("page", ["architecture", "glossary"])
def test_every_name_is_in_its_file(page: str) -> None:
    names = _NAME.findall(text_of(page))
    assert len(names) > 20
    unknown = []
    for name, path in names:
        file = PACKAGE / path
        if not file.exists() or not re.search(rf"\b{name}\b", file.read_text()):
            unknown.append(f"{name} in {path}")
    assert unknown == []


def test_the_glossary_has_each_term_once_in_alphabetical_order() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", text_of("glossary"), re.MULTILINE)
    terms = [term for term, _, _ in rows if term != "term"]
    assert len(terms) > 60
    assert terms == sorted(terms, key=str.lower)
    assert len({term.lower() for term in terms}) == len(terms)
    assert all("`" in where for term, _, where in rows if term != "term")
