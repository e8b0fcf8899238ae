"""The monitoring guide and the dashboard cover all metrics, and no others."""

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
    """The metrics page of an engine on disk after every kind of command."""

    async def scrape(path: Path) -> Page:
        async with opened(path) as server:
            await server.create_bucket("bucket")
            await server.append("bucket", "stream", b"x")
            server.count_response("append", 204)
            return server.page()

    return asyncio.run(scrape(tmp_path_factory.mktemp("page")))


def shown(page: Page) -> dict[str, tuple[str, set[str]]]:
    """The kind and the labels of each metric on the page."""
    found = {}
    for family in page.families.values():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = (family.type, labels)
    return found


def test_the_documented_metrics_are_the_existing_ones(page: Page) -> None:
    ours = {name for name in shown(page) if name.startswith("tailrace_")}
    rows = [row[0] for row in ROW.findall(GUIDE)]
    assert sorted(rows) == sorted(HELP) == sorted(ours)


def test_kinds_and_labels_are_as_documented(page: Page) -> None:
    for name, kind, labels, _ in ROW.findall(GUIDE):
        # In Prometheus' text format an info is a gauge.
        expected = "gauge" if kind == "info" else kind
        assert shown(page)[name] == (expected, set(re.findall(r"`(\w+)`", labels))), name


def metrics_of(text: str) -> set[str]:
    """The metrics in an expression; a histogram by its name, without the suffix."""
    found = set()
    for name in NAME.findall(text):
        part = next((part for part in PARTS if name.endswith(part)), "")
        found.add(name.removesuffix(part))
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


def test_every_expression_of_the_dashboard_uses_existing_metrics(page: Page) -> None:
    for expression in expressions():
        named = metrics_of(expression)
        assert named, expression
        for left, right in ("()", "[]", "{}"):
            assert expression.count(left) == expression.count(right), expression
        assert named <= set(shown(page)), expression
        for part in re.findall(r"(tailrace_\w+)_bucket\b", expression):
            assert shown(page)[part][0] == "histogram"


def test_every_label_of_the_dashboard_belongs_to_its_metric(page: Page) -> None:
    for expression in expressions():
        labels = set(re.findall(r"sum by \((\w+)\)", expression)) - {"le"}
        known = set().union(*(shown(page)[name][1] for name in metrics_of(expression)))
        assert labels <= known, expression


def test_the_dashboard_can_be_imported_and_has_all_panels() -> None:
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


def test_the_alerts_use_existing_metrics_and_codes(page: Page) -> None:
    alerts = re.findall(r"^ +expr: (.+)$", GUIDE, re.MULTILINE)
    assert len(alerts) >= 8
    known = page.labels("tailrace_refused_total", "code")
    for alert in alerts:
        assert metrics_of(alert) <= set(shown(page)), alert
        for codes in re.findall(r'code=~"([^"]+)"', alert):
            assert set(codes.split("|")) <= set(known), alert
