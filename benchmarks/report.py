"""From raw rounds to medians, ratios, goals and a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.model import (
    OURS,
    OURS_MEMORY,
    REFERENCE_FILE,
    REFERENCE_MEMORY,
    AtLeast,
    Goal,
    Outcome,
    Row,
    TimesBetter,
    Workload,
)

Rounds = dict[str, list[Outcome]]
"""The outcomes of each peer, one per round."""

COLUMNS = {
    OURS: "ours",
    REFERENCE_FILE: "ref. file",
    REFERENCE_MEMORY: "ref. memory",
    OURS_MEMORY: "ours memory",
}
SHORT = {REFERENCE_FILE: "file", REFERENCE_MEMORY: "memory"}


@dataclass(frozen=True)
class Judged:
    """A goal, and whether it was met; None if it was not measured."""

    goal: str
    met: bool | None


@dataclass(frozen=True)
class Line:
    """One row of the table with its figures."""

    work: str
    metric: str
    title: str
    unit: str
    medians: dict[str, float]
    times_better: dict[str, float]
    goals: tuple[Judged, ...]

    def as_json(self) -> dict[str, object]:
        """The line as JSON values."""
        return asdict(self)


def medians(rounds: Rounds) -> dict[str, dict[str, float]]:
    """For each peer, the median of each metric over its rounds."""
    found: dict[str, dict[str, float]] = {}
    for peer, outcomes in rounds.items():
        if outcomes:
            found[peer] = {
                metric: statistics.median(outcome.metrics[metric] for outcome in outcomes)
                for metric in outcomes[0].metrics
            }
    return found


def lines(workload: Workload, rounds: Rounds) -> list[Line]:
    """The table rows of one workload."""
    middle = medians(rounds)
    return [_line(workload, row, middle) for row in workload.rows]


def table(all_lines: Sequence[Line]) -> str:
    """The final table as aligned plain text."""
    peers = [peer for peer in COLUMNS if any(peer in line.medians for line in all_lines)]
    versus = [peer for peer in SHORT if any(peer in line.times_better for line in all_lines)]
    heading = ["work", *(COLUMNS[peer] for peer in peers)]
    heading += [f"x {SHORT[peer]}" for peer in versus] + ["goal", "met"]
    cells = [heading]
    for line in all_lines:
        row = [line.title]
        row += [_figure(line.medians.get(peer), line.unit) for peer in peers]
        row += [_figure(line.times_better.get(peer), "x") for peer in versus]
        row += ["; ".join(judged.goal for judged in line.goals), _met(line.goals)]
        cells.append(row)
    widths = [max(len(row[column]) for row in cells) for column in range(len(heading))]
    figures = range(1, 1 + len(peers) + len(versus))
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in figures else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [cells[0], ["-" * width for width in widths], *cells[1:]]
    )


def _line(workload: Workload, row: Row, middle: dict[str, dict[str, float]]) -> Line:
    values = {peer: found[row.metric] for peer, found in middle.items() if row.metric in found}
    ours = values.get(OURS)
    times: dict[str, float] = {}
    for peer in SHORT:
        theirs = values.get(peer)
        if ours and theirs:
            times[peer] = ours / theirs if row.more_is_better else theirs / ours
    goals = tuple(_judge(goal, row.unit, ours, times) for goal in row.goals)
    return Line(workload.name, row.metric, row.title, row.unit, values, times, goals)


def _judge(goal: Goal, unit: str, ours: float | None, times: dict[str, float]) -> Judged:
    if isinstance(goal, TimesBetter):
        found = times.get(goal.peer)
        text = f">= {goal.least:g}x {SHORT[goal.peer]}"
        return Judged(text, None if found is None else found >= goal.least)
    if isinstance(goal, AtLeast):
        text = f">= {goal.least:,g} {unit}".rstrip()
        return Judged(text, None if ours is None else ours >= goal.least)
    text = f"<= {goal.most:g} {unit}".rstrip()
    return Judged(text, None if ours is None else ours <= goal.most)


def _met(goals: Sequence[Judged]) -> str:
    words = {True: "yes", False: "no", None: "not measured"}
    found = [words[judged.met] for judged in goals]
    return found[0] if len(set(found)) == 1 else "; ".join(found)


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()
