"""The guide and the board speak of metrics that there are, and of all of them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tailrace.server.observability.metrics.families import HELP
from tests.server.metrics.engines import opened
from tests.server.metrics.pages import Page
from tests.support.server import REPO_ROOT

GUIDE = (REPO_ROOT / "docs/guides/monitoring.md").read_text()
BOARD: dict[str, Any] = json.loads((REPO_ROOT / "deploy/grafana/tailrace.json").read_text())
ROW = re.compile(r"^\| `(tailrace_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE)
NAME = re.compile(r"\b(?:tailrace|process|python)_\w+")
PARTS = ("_bucket", "_sum", "_count")
PANELS = {
    "Appends per second", "Bytes per second", "Append latency", "Fsync time", "Live readers",
    "Refused per second", "Stored",
}  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """What an engine on disk says after a little of everything."""

    async def ask(path: Path) -> Page:
        async with opened(path) as server:
            await server.create_bucket("bucket")
            await server.append("bucket", "stream", b"x")
            server.answer("append", 204)
            return server.page()

    return asyncio.run(ask(tmp_path_factory.mktemp("page")))


def shown(page: Page) -> dict[str, tuple[str, set[str]]]:
    """Of each metric that is shown: its kind, and its labels."""
    found = {}
    for family in page.families.values():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = (family.type, labels)
    return found


def test_every_metric_is_documented_and_every_documented_one_exists(page: Page) -> None:
    ours = {name for name in shown(page) if name.startswith("tailrace_")}
    rows = [row[0] for row in ROW.findall(GUIDE)]
    assert sorted(rows) == sorted(HELP) == sorted(ours)


def test_kinds_and_labels_are_those_that_are_documented(page: Page) -> None:
    for name, kind, labels, _ in ROW.findall(GUIDE):
        # The text format of Prometheus has no info: it is a gauge there.
        expected = "gauge" if kind == "info" else kind
        assert shown(page)[name] == (expected, set(re.findall(r"`(\w+)`", labels))), name


def metrics_of(text: str) -> set[str]:
    """The metrics that expressions name; a histogram by its own name, not by its parts."""
    found = set()
    for name in NAME.findall(text):
        part = next((part for part in PARTS if name.endswith(part)), "")
        found.add(name.removesuffix(part))
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


def test_every_expression_of_the_board_names_metrics_that_exist(page: Page) -> None:
    for expression in expressions():
        named = metrics_of(expression)
        assert named, expression
        for left, right in ("()", "[]", "{}"):
            assert expression.count(left) == expression.count(right), expression
        assert named <= set(shown(page)), expression
        for part in re.findall(r"(tailrace_\w+)_bucket\b", expression):
            assert shown(page)[part][0] == "histogram"


def test_every_label_of_the_board_is_one_of_its_metric(page: Page) -> None:
    for expression in expressions():
        labels = set(re.findall(r"sum by \((\w+)\)", expression)) - {"le"}
        known = set().union(*(shown(page)[name][1] for name in metrics_of(expression)))
        assert labels <= known, expression


def test_the_board_can_be_imported_and_shows_what_matters() -> None:
    assert BOARD["uid"]
    assert {"datasource"} <= {
        item["name"] for item in BOARD["templating"]["list"] if item["type"] == "datasource"
    }
    assert {panel["title"] for panel in BOARD["panels"]} >= PANELS
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    for panel in BOARD["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
    cells = [
        (x, y)
        for panel in BOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells), "panels lie on each other"
    assert max(x for x, _ in cells) < 24, "a board is 24 wide"


def test_the_alerts_name_metrics_and_codes_that_exist(page: Page) -> None:
    alerts = re.findall(r"^ +expr: (.+)$", GUIDE, re.MULTILINE)
    assert len(alerts) >= 8
    known = page.labels("tailrace_refused_total", "code")
    for alert in alerts:
        assert metrics_of(alert) <= set(shown(page)), alert
        for codes in re.findall(r'code=~"([^"]+)"', alert):
            assert set(codes.split("|")) <= set(known), alert
