"""The page of a report: whole, by itself, and safe whatever streams are called."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from tailrace.client import Listed
from tailrace.protocol.offset import Offset
from tailrace.spark.jobs.report_charts import Bar, filled, growth_chart, name_bars, sparkline
from tailrace.spark.jobs.report_page import page
from tailrace.spark.jobs.report_values import (
    Compaction,
    Growth,
    Measured,
    Report,
    Sizes,
    sizes_of,
    summarize,
)

HOUR_MS = 3_600_000
EVIL = "</title><script>alert(1)</script>&\"'<img src=x onerror=alert(1)>"


class Bucket:
    def __init__(self, bucket: str, streams: list[Listed]) -> None:
        self.bucket = bucket
        self.streams = streams


def listed(name: str, earliest: Offset, snapshot: int) -> Listed:
    return Listed(
        stream_id=name,
        closed=False,
        content_type="application/json",
        size=100,
        next_offset=Offset(10, 100).token(),
        created_at_ms=0,
        last_write_at_ms=HOUR_MS,
        earliest_offset=earliest.token(),
        snapshot_offset=earliest.token(),
        snapshot_bytes=snapshot,
    )


def measured(*sizes: int) -> Measured:
    found = Measured(producers={EVIL: 1}, producer_count=1)
    for number, size in enumerate(sizes):
        found.add_size(size, size, 1, size)
        found.add_period(number * HOUR_MS, 1, size, number * HOUR_MS, number * HOUR_MS + 500)
    return found


def made(*names: str, key: str | None = None) -> Report:
    plans = [Bucket("orders", [listed(name, Offset(5, 50), 20) for name in names])]
    found = {place: measured(10, 20, 30) for place in range(len(names))}
    summed = summarize(plans, found, {0: measured()}, {0: EVIL}, has_key=key is not None)
    return Report(url="http://127.0.0.1:4437", at_ms=0, period="hour", key=key, **summed)


def test_streams_add_up_to_their_bucket() -> None:
    report = made("a", "b")
    (bucket,), (first, second) = report.buckets, report.streams
    assert (first.messages, first.bytes, first.sizes) == (3, 60, Sizes(20, 30, 30))
    assert (bucket.messages, bucket.bytes, bucket.streams) == (6, 120, 2)
    assert [each.messages for each in bucket.growth] == [2, 2, 2]
    assert [each.bytes for each in bucket.growth] == [20, 40, 60]
    assert first.rate_per_s == round(3000 / (2 * HOUR_MS + 500), 6)
    assert second.compaction == Compaction(5, 50, 1, 20) and second.compaction.saved == 30
    assert bucket.compaction == Compaction(10, 100, 2, 40)


def test_a_fold_is_told_where_there_is_a_key() -> None:
    assert made("a").streams[0].fold is None
    fold = made("a", key="/id").streams[0].fold
    assert fold is not None and fold.saved == 60
    assert "fold would save" in page(made("a", key="/id"))


@given(sizes=st.lists(st.integers(0, 10_000), min_size=1))
def test_percentiles_are_those_of_the_sorted_sizes(sizes: list[int]) -> None:
    found = sizes_of([(size, 1) for size in sizes])
    ordered = sorted(sizes)
    assert found.p50 == ordered[-(-len(sizes) * 50 // 100) - 1]
    assert found.p95 == ordered[-(-len(sizes) * 95 // 100) - 1]
    assert found.max == ordered[-1]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_names_are_text_and_nothing_else() -> None:
    html = page(made(EVIL, "plain", key="/id"))
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert not tags.seen & {"script", "img", "link", "iframe", "object", "use", "a"}
    assert not {name for name in tags.attributes if name.startswith("on")}
    assert not tags.attributes & {"src", "href", "style"}
    assert "alert(1)" in html and "<script" not in html and "<img" not in html
    assert set(re.findall(r"https?:[^\s<\"]+", html)) == {"http://127.0.0.1:4437,"}
    assert "default-src 'none'" in html


@given(name=st.text(min_size=1), value=st.integers(0, 10**15))
def test_a_chart_is_well_formed_whatever_it_shows(name: str, value: int) -> None:
    printable = "".join(char for char in name if char.isprintable())
    ElementTree.fromstring(name_bars([Bar(printable, value, value)], printable))


@given(
    growth=st.dictionaries(st.integers(0, 2000), st.integers(1, 10**9), min_size=1, max_size=30),
    bars_max=st.integers(1, 300),
)
def test_bars_cover_all_time_and_lose_nothing(growth: dict[int, int], bars_max: int) -> None:
    given_ = [Growth(at * HOUR_MS, count, 2 * count) for at, count in sorted(growth.items())]
    bars = filled(given_, HOUR_MS, bars_max)
    assert len(bars) <= bars_max
    assert sum(bar.messages for bar in bars) == sum(growth.values())
    assert len({after.start_ms - bar.start_ms for bar, after in pairwise(bars)}) <= 1
    ElementTree.fromstring(growth_chart(given_, HOUR_MS, "growth"))
    ElementTree.fromstring(sparkline(given_, HOUR_MS, 0, 2000 * HOUR_MS))


def test_an_empty_bucket_has_a_page() -> None:
    assert "nothing was written" in page(made())
