"""The files for continuous integration parse, and name targets and versions that exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.server import REPO_ROOT

GITHUB = REPO_ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def load(path: Path) -> dict[Any, Any]:
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict), path
    return content


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (REPO_ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(workflow: dict[Any, Any]) -> Iterator[str]:
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            yield step.get("run", "")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_complete_and_names_existing_targets(path: Path) -> None:
    workflow = load(path)
    # YAML 1.1 reads the key `on` as true.
    assert workflow["name"] == path.stem and workflow[True] and workflow["permissions"]
    for job in workflow["jobs"].values():
        assert job["runs-on"] and job["timeout-minutes"]
    called = set(re.findall(r"\bmake ([a-z-]+)", "\n".join(commands(workflow))))
    assert called
    assert called <= makefile_targets()


def test_the_scripts_and_guides_name_existing_targets() -> None:
    for name in (".ci/run", "CONTRIBUTING.md", "README.md", ".github/PULL_REQUEST_TEMPLATE.md"):
        text = (REPO_ROOT / name).read_text()
        # In Markdown, commands are in code spans or blocks; elsewhere "make" may be a verb.
        called = set(re.findall(r"(?:^|`)make(?: [A-Z]+=\S+)* ([a-z-]+)", text, re.MULTILINE))
        assert called <= makefile_targets(), name


def test_every_supported_python_is_declared_and_tested() -> None:
    project = tomllib.loads((REPO_ROOT / "pyproject.toml").read_text())["project"]
    declared = [
        classifier.rpartition(" ")[2]
        for classifier in project["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", classifier)
    ]
    tested = load(GITHUB / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert declared == tested
    assert project["requires-python"] == f">={declared[0]}"


def test_the_version_is_written_once() -> None:
    """It is in `src/tailrace/__init__.py`; pyproject.toml reads it from there."""
    project = tomllib.loads((REPO_ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    path = REPO_ROOT / project["tool"]["hatch"]["version"]["path"]
    (version,) = re.findall(r'^__version__ = "(.+)"$', path.read_text(), re.MULTILINE)
    assert f"## {version}" in (REPO_ROOT / "CHANGELOG.md").read_text()


def test_forms_and_hooks_parse() -> None:
    for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml"):
        assert load(path)
    for repository in load(REPO_ROOT / ".pre-commit-config.yaml")["repos"]:
        # Nothing is downloaded: the hooks are the tools of .venv.
        assert repository["repo"] == "local"
        assert all(hook["entry"].startswith(".venv/bin/") for hook in repository["hooks"])
