"""A data directory with something of everything, built once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.operations.building import build
from tests.support.chance import derive


@pytest.fixture(scope="package")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a killed server left it. Not to be changed."""
    directory = tmp_path_factory.mktemp("operations") / "built"
    build(directory, derive(6, "operations"))
    return directory


@pytest.fixture
def copied(built: Path, tmp_path: Path) -> Path:
    """A copy of it, to do anything with."""
    return Path(shutil.copytree(built, tmp_path / "copied"))
