"""
Charts of a report as SVG: bars over time, bars beside names, and small ones for tables.

Colours come from the page's classes, so that a chart is right in the light and in the dark. Every
text that comes from elsewhere is escaped here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from tailrace.spark.jobs.report_values import Growth

__all__ = ["Bar", "compact", "filled", "growth_chart", "human_bytes", "name_bars", "sparkline"]

_BARS_MAX: Final = 240
_WIDTH: Final = 720
_HEIGHT: Final = 180
_LEFT: Final = 52
_BOTTOM: Final = 24
_TOP: Final = 12
_ROW: Final = 24
_NAMES: Final = 220


def compact(number: float) -> str:
    """1234567 is 1.23M."""
    for unit in ("", "k", "M", "G"):
        if abs(number) < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:,.3g}T"


def human_bytes(size: float) -> str:
    """1536 is 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def filled(growth: Sequence[Growth], period_ms: int, bars_max: int = _BARS_MAX) -> list[Growth]:
    """Every period from the first to the last; several together where they are too many."""
    if not growth:
        return []
    first, last = growth[0].start_ms, growth[-1].start_ms
    count = (last - first) // period_ms + 1
    step_ms = period_ms * -(-count // bars_max)
    found = {first + at * step_ms: [0, 0] for at in range((last - first) // step_ms + 1)}
    for each in growth:
        counts = found[first + (each.start_ms - first) // step_ms * step_ms]
        counts[0] += each.messages
        counts[1] += each.bytes
    return [Growth(start, *counts) for start, counts in found.items()]


def _moment(ms: int, period_ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d" if period_ms >= 86_400_000 else "%m-%d %H:%M")


def _nice(most: float) -> float:
    """A round number that is not below."""
    if most <= 0:
        return 1.0
    power = 10.0 ** (len(str(int(most))) - 1)
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= most)


def growth_chart(growth: Sequence[Growth], period_ms: int, label: str) -> str:
    """Messages by period, as bars."""
    bars = filled(growth, period_ms)
    if not bars:
        return '<p class="none">nothing was written</p>'
    top = _nice(max(bar.messages for bar in bars))
    width = (_WIDTH - _LEFT) / max(len(bars), 12)
    height = _HEIGHT - _BOTTOM - _TOP
    drawn = [_grid(top, share, height) for share in (0, 0.5, 1)]
    for at, bar in enumerate(bars):
        tall = bar.messages / top * height
        tip = (
            f"{_moment(bar.start_ms, period_ms)} UTC: {bar.messages:,} messages, "
            f"{human_bytes(bar.bytes)}"
        )
        gap = 2 if width > 5 else 0.5
        drawn.append(
            f'<rect class="bar" x="{_LEFT + at * width:.1f}" y="{_TOP + height - tall:.1f}" '
            f'width="{max(width - gap, 0.5):.1f}" height="{tall:.1f}"><title>{tip}</title></rect>'
        )
    drawn += _times(bars, period_ms, width)
    return _svg(_WIDTH, _HEIGHT, label, drawn)


def _grid(top: float, share: float, height: float) -> str:
    y = _TOP + height * (1 - share)
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="axis" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
        f"{compact(top * share)}</text>"
    )


def _times(bars: Sequence[Growth], period_ms: int, width: float) -> list[str]:
    """The first, one in the middle and the last, as far as they do not touch each other."""
    places = {0: "start", len(bars) // 2: "middle", len(bars) - 1: "end"}
    room = len(bars) * width
    if room < 260:
        places = {0: "start"}
    elif room < 420 or len(bars) < 3:
        places = {0: "start", len(bars) - 1: "end"}
    made = []
    for at, anchor in places.items():
        x = _LEFT + at * width + {"start": 0, "middle": width / 2, "end": width}[anchor]
        made.append(
            f'<text class="axis" x="{x:.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">'
            f"{_moment(bars[at].start_ms, period_ms)}</text>"
        )
    return made


@dataclass(frozen=True, slots=True)
class Bar:
    """A name, and what it has: what is there, and what is not any more."""

    name: str
    value: float
    second: float = 0


def name_bars(bars: Sequence[Bar], label: str, show: Callable[[float], str] = human_bytes) -> str:
    """Horizontal bars beside their names; the second part of each is paler."""
    most = max((bar.value + bar.second for bar in bars), default=0) or 1
    room = _WIDTH - _NAMES - 150
    drawn = []
    for at, bar in enumerate(bars):
        y = at * _ROW
        first, second = bar.value / most * room, bar.second / most * room
        more = f" + {show(bar.second)}" if bar.second else ""
        told = show(bar.value) + (f"{more} dropped" if more else "")
        drawn.append(
            f"<g><title>{escape(bar.name)}: {escape(told)}</title>"
            f'<text class="name" x="{_NAMES - 8}" y="{y + 16}" text-anchor="end">'
            f"{escape(_short(bar.name))}</text>"
            f'<rect class="bar" x="{_NAMES}" y="{y + 4}" width="{first:.1f}" height="16"/>'
            f'<rect class="pale" x="{_NAMES + first:.1f}" y="{y + 4}" width="{second:.1f}" '
            'height="16"/>'
            f'<text class="axis" x="{_NAMES + first + second + 6:.1f}" y="{y + 16}">'
            f"{escape(show(bar.value))}{escape(more)}</text></g>"
        )
    return _svg(_WIDTH, max(len(bars), 1) * _ROW, label, drawn)


def _short(name: str, length: int = 30) -> str:
    """Its end tells names apart more often than its middle does."""
    return name if len(name) <= length else f"{name[: length // 2]}…{name[-(length // 2 - 1) :]}"


def sparkline(growth: Sequence[Growth], period_ms: int, first_ms: int, last_ms: int) -> str:
    """Growth as small as a word, on the time of all."""
    ends = [Growth(first_ms, 0, 0), *growth, Growth(last_ms, 0, 0)]
    bars = filled(sorted(ends, key=lambda each: each.start_ms), period_ms, bars_max=40)
    most = max((bar.messages for bar in bars), default=0) or 1
    width = 100 / max(len(bars), 12)
    drawn = [
        f'<rect class="bar" x="{at * width:.1f}" y="{18 - bar.messages / most * 18:.1f}" '
        f'width="{max(width - 0.5, 0.5):.1f}" height="{bar.messages / most * 18:.1f}"/>'
        for at, bar in enumerate(bars)
        if bar.messages
    ]
    return f'<svg class="spark" viewBox="0 0 100 18" aria-hidden="true">{"".join(drawn)}</svg>'


def _svg(width: int, height: int, label: str, drawn: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(drawn)}</svg>"
    )
