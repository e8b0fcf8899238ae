"""
A report as one HTML page: nothing but itself, no script, right in the light and in the dark.

Names of streams and producers are what somebody wrote: every text goes through `escape`, here or in
`report_charts`, and the page's policy lets nothing load or run even if one did not.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from tailrace.spark.jobs.report_charts import (
    Bar,
    compact,
    growth_chart,
    human_bytes,
    name_bars,
    sparkline,
)
from tailrace.spark.jobs.report_values import Report, Summary

__all__ = ["page"]

PERIODS_MS: Final = {"hour": 3_600_000, "day": 86_400_000}
_BARS: Final = 12
_ROWS_MAX: Final = 500

_STYLE: Final = """
:root { color-scheme: light dark; --back: #fcfcfb; --card: #ffffff; --text: #1d1f21;
  --soft: #63676b; --line: #e3e3df; --bar: #2a6f97; --pale: #bcd4e2; --bad: #a4262c; }
@media (prefers-color-scheme: dark) { :root { --back: #16181a; --card: #1e2124; --text: #e8e8e6;
  --soft: #a0a4a8; --line: #33373b; --bar: #6fb1d6; --pale: #2f4d5f; --bad: #f1707b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 24px 20px 60px; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0; } .at { margin-bottom: 16px; }
h2 { font-size: 20px; margin: 40px 0 12px; }
h3 { font-size: 14px; font-weight: 600; margin: 0 0 8px; }
p { margin: 4px 0; } .soft, .none { color: var(--soft); } .bad { color: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: 10px; }
.card, .chart { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 12px 14px; }
.card b { display: block; font-size: 20px; font-weight: 600; overflow-wrap: anywhere; }
.card span { color: var(--soft); font-size: 13px; }
.chart { margin-top: 12px; overflow-x: auto; }
.chart svg { display: block; width: 100%; min-width: 560px; max-width: 960px;
  height: auto; }
.bar { fill: var(--bar); } .pale { fill: var(--pale); } .grid { stroke: var(--line); }
.axis { fill: var(--soft); font-size: 11px; } .name { fill: var(--text); font-size: 12px; }
.wide { overflow-x: auto; margin-top: 12px; background: var(--card);
  border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13px;
  font-variant-numeric: tabular-nums; }
th, td { padding: 6px 9px; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child { text-align: left; }
td:first-child div { max-width: 300px; overflow: hidden; text-overflow: ellipsis; }
.spark { width: 100px; height: 18px; vertical-align: middle; }
"""


def page(report: Report) -> str:
    """The whole page."""
    names = ", ".join(summary.name for summary in report.buckets)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(names)}: report</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(names)}</h1>",
        f'<p class="soft at">{escape(report.url)}, {_at(report.at_ms)} UTC</p>',
    ]
    for summary in report.buckets:
        streams = [each for each in report.streams if each.bucket == summary.bucket]
        parts.append(_bucket(report, summary, streams))
    return "\n".join([*parts, "</body></html>", ""])


def _at(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _bucket(report: Report, whole: Summary, streams: Sequence[Summary]) -> str:
    largest = sorted(streams, key=lambda each: -(each.bytes + each.compaction.bytes))
    period_ms = PERIODS_MS[report.period]
    bars = [Bar(each.stream or "", each.bytes, each.compaction.bytes) for each in largest[:_BARS]]
    heading = f"<h2>{escape(whole.name)}</h2>" if len(report.buckets) > 1 else ""
    return "\n".join(
        [
            heading,
            _cards(whole),
            _chart(
                f"Messages by {report.period} of commit, UTC",
                growth_chart(whole.growth, period_ms, f"messages by {report.period}"),
            ),
            _chart(
                "The largest streams: what is retained, and (paler) what snapshots have dropped",
                name_bars(bars, "bytes by stream"),
            ),
            _busiest(whole),
            _table(largest, whole, period_ms, has_key=report.key is not None),
            _failed(streams),
        ]
    )


def _chart(title: str, svg: str) -> str:
    return f'<section class="chart"><h3>{escape(title)}</h3>{svg}</section>'


def _cards(whole: Summary) -> str:
    sizes = whole.sizes
    saved = whole.compaction
    cards = [
        (f"{whole.streams:,}", f"streams, {whole.closed:,} closed"),
        (f"{whole.messages:,}", "messages retained"),
        (human_bytes(whole.bytes), "of messages"),
        (_rate(whole), "messages a second"),
        (
            f"{human_bytes(sizes.p50)}",
            f"median size; 95 % to {human_bytes(sizes.p95)}, largest {human_bytes(sizes.max)}",
        ),
        (f"{whole.producers:,}", "producers"),
        (
            human_bytes(saved.saved),
            f"saved by {saved.snapshots:,} snapshot{'s' * (saved.snapshots != 1)}: "
            f"{human_bytes(saved.bytes)} dropped, {human_bytes(saved.snapshot_bytes)} kept",
        ),
    ]
    if whole.fold is not None:
        told = f"a fold would save, keeping the last of {whole.fold.keys:,} keys"
        cards.append((human_bytes(whole.fold.saved), told))
    made = (f'<div class="card"><b>{escape(big)}</b><span>{escape(small)}</span></div>'
            for big, small in cards)  # fmt: skip
    return f'<div class="cards">{"".join(made)}</div>'


def _rate(summary: Summary) -> str:
    return "–" if summary.rate_per_s is None else compact(summary.rate_per_s)


def _busiest(whole: Summary) -> str:
    if not whole.busiest:
        return ""
    bars = [Bar(name, messages) for name, messages in whole.busiest.items()]
    return _chart("The busiest producers, by messages", name_bars(bars, "producers", compact))


def _table(streams: Sequence[Summary], whole: Summary, period_ms: int, *, has_key: bool) -> str:
    titles = [
        "stream",
        "type",
        "state",
        "messages",
        "bytes",
        "per s",
        "p50",
        "p95",
        "max",
        "producers",
    ]
    titles += ["dropped", "saved", *(["fold saves"] if has_key else []), "growth", "last write"]
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = [_row(each, whole, period_ms) for each in streams[:_ROWS_MAX]]
    more = len(streams) - len(rows)
    note = f'<p class="soft">and {more:,} smaller streams</p>' if more > 0 else ""
    body = "\n".join(rows)
    return f'<div class="wide"><table><tr>{head}</tr>\n{body}\n</table></div>{note}'


def _row(each: Summary, whole: Summary, period_ms: int) -> str:
    cells = [
        f'<div title="{escape(each.stream or "")}">{escape(each.stream or "")}</div>',
        escape(each.content_type or ""),
        "closed" if each.closed else "open",
        f"{each.messages:,}",
        human_bytes(each.bytes),
        _rate(each),
        *(human_bytes(size) for size in (each.sizes.p50, each.sizes.p95, each.sizes.max)),
        f"{each.producers:,}",
        human_bytes(each.compaction.bytes),
        human_bytes(each.compaction.saved),
    ]
    if each.fold is not None:
        cells.append(human_bytes(each.fold.saved))
    if whole.growth:
        ends = whole.growth[0].start_ms, whole.growth[-1].start_ms
        cells.append(sparkline(each.growth, period_ms, *ends))
    else:
        cells.append("")
    cells.append("" if each.last_ms is None else _at(each.last_ms))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _failed(streams: Sequence[Summary]) -> str:
    failed = [each for each in streams if each.error is not None]
    told = "".join(f"<li>{escape(each.name)}: {escape(each.error or '')}</li>" for each in failed)
    return f'<p class="bad">could not be read:</p><ul class="bad">{told}</ul>' if failed else ""
