"""The metrics page: its formats, and its bounded size for any number of buckets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from tailrace.engine.base import SNAPSHOT_CHUNK_BYTES
from tailrace.engine.rocks import RocksStore
from tests.server.metrics.engines import Counted, Refused, opened
from tests.server.metrics.pages import Page

BY_BUCKET = ("tailrace_bucket_streams", "tailrace_bucket_bytes", "tailrace_bucket_appends_total")


def openmetrics(text: str) -> list[Metric]:
    return list(parse_openmetrics(text))  # type: ignore[no-untyped-call]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def size_of_logs(path: Path) -> int:
    return sum(log.stat().st_size for log in path.glob("*.log"))


async def run_every_command(server: Counted) -> None:
    await server.create_bucket("bucket")
    await server.append("bucket", "stream", b"hello")
    server.count_response("append", 204)
    server.count_response("read", 404, "stream-not-found")
    server.metrics.count_refusal("request-malformed")


def test_both_formats_have_the_same_samples(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as server:
            await run_every_command(server)
            kind, text = await server.metrics.scrape(b"")
            assert kind == b"text/plain; version=0.0.4; charset=utf-8"
            plain = {family.name for family in prometheus(text.decode())}
            # The header that Prometheus sends.
            accept = (
                b"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
            )
            kind, text = await server.metrics.scrape(accept)
            assert kind.startswith(b"application/openmetrics-text; version=1.0.0")
            # An info has no suffix in OpenMetrics, and is a gauge with one in the text format.
            open_names = {family.name for family in openmetrics(text.decode())}
            assert plain - open_names == {"tailrace_build_info"}
            assert open_names - plain == {"tailrace_build"}

    run(check())


@pytest.mark.parametrize(
    "accept",
    [
        b"application/openmetrics-text;version=nonsense",
        b"application/openmetrics-text; version=99.0.0; escaping=nonsense",
        b"APPLICATION/OPENMETRICS-TEXT",
        b";;;,,,=\xff",
        b"text/plain;version=x",
        b"*/*",
    ],
)
def test_any_accept_header_gets_the_page_and_is_not_quoted_in_it(accept: bytes) -> None:
    async def check() -> None:
        async with opened() as server:
            kind, text = await server.metrics.scrape(accept)
            assert b"nonsense" not in kind
            assert b"99" not in kind
            parse = openmetrics if b"openmetrics" in kind else prometheus
            assert list(parse(text.decode()))

    run(check())


def test_a_scrape_in_a_thread_returns_the_same_page() -> None:
    async def check() -> None:
        async with opened() as server:
            await run_every_command(server)
            page = Page((await server.metrics.scrape(b""))[1].decode())
            for name in ("tailrace_requests_total", "tailrace_refused_total", *BY_BUCKET):
                assert page.all(name) == server.page().all(name)

    run(check())


def test_the_number_of_bucket_labels_is_limited() -> None:
    """Buckets without their own label are in `other`, so that sums are correct."""

    async def check() -> None:
        async with opened(buckets_max=10) as server:
            names = [f"bucket-{number:04}" for number in range(1000)]
            await asyncio.gather(*map(server.create_bucket, names))
            await asyncio.gather(*(server.append(name, "s", b"12345") for name in names))
            page = server.page()
            assert page("tailrace_buckets") == 1000
            for name, total in zip(BY_BUCKET, (1000, 5000, 1000), strict=True):
                values = page.labels(name, "bucket")
                assert len(values) == 11
                assert sum(values.values()) == total
                assert values["other"] == total * 0.99
            before = set(page.labels("tailrace_bucket_appends_total", "bucket"))
            # Nor does it grow over time.
            for name in names[:50]:
                await server.delete(name, "s")
                await server.delete_bucket(name)
                await server.create_bucket(f"new-{name}")
            page = server.page()
            assert page("tailrace_buckets") == 1000
            assert set(page.labels("tailrace_bucket_appends_total", "bucket")) == before
            assert set(page.labels("tailrace_bucket_streams", "bucket")) <= before

    run(check())


def test_a_bucket_named_other_is_counted_in_the_label_other() -> None:
    async def check() -> None:
        async with opened() as server:
            await server.create_bucket("other")
            await server.append("other", "s", b"123")
            page = server.page()
            for name, value in zip(BY_BUCKET, (1, 3, 1), strict=True):
                assert page.labels(name, "bucket") == {"other": value}

    run(check())


def test_a_limit_of_zero_has_no_bucket_labels() -> None:
    async def check() -> None:
        async with opened(buckets_max=0) as server:
            await server.create_bucket("bucket")
            await server.append("bucket", "s", b"123")
            assert server.page().labels("tailrace_bucket_bytes", "bucket") == {"other": 3}

    run(check())


@pytest.mark.parametrize("seed", range(3))
def test_sums_match_storage_after_random_commands(tmp_path: Path, seed: int) -> None:
    """
    The counts kept along with commits are the counts that a restart reads from storage.

    Method: create, append and delete at random, several at once so that they share commit batches;
    then compare with the values after a restart.
    """
    chance = random.Random(seed)

    async def work(server: Counted) -> None:
        bucket = f"bucket-{chance.randrange(8)}"
        stream = f"stream-{chance.randrange(4)}"
        try:
            match chance.randrange(5):
                case 0:
                    await server.create_bucket(bucket)
                case 1:
                    await server.delete(bucket, stream)
                case 2:
                    await server.delete_bucket(bucket)
                case _:
                    await server.append(bucket, stream, b"x" * chance.randrange(1, 50))
        except Refused:
            pass

    async def check() -> None:
        async with opened(tmp_path, buckets_max=3) as server:
            for _ in range(40):
                await asyncio.gather(*(work(server) for _ in range(8)))
            before = server.page()
            for key in [b"bucket-%d" % number for number in range(8)]:
                state = server.engine.buckets.entry(key).durable
                assert state == server.engine.store.bucket(key)
        async with opened(tmp_path, buckets_max=3) as server:
            after = server.page()
        assert before("tailrace_buckets") == after("tailrace_buckets") > 0
        for name in ("tailrace_bucket_streams", "tailrace_bucket_bytes"):
            assert sum(before.all(name).values()) == sum(after.all(name).values()) > 0
            assert min(before.all(name).values()) >= 0

    run(check())


def test_a_stream_that_is_created_again_in_the_same_batch_is_counted_from_its_start() -> None:
    async def check() -> None:
        async with opened() as server:
            await server.create_bucket("bucket")
            await server.append("bucket", "s", b"1234567890")
            commits = server.page()("tailrace_commits_total")
            await asyncio.gather(server.delete("bucket", "s"), server.create("bucket", "s", b"123"))
            page = server.page()
            assert page("tailrace_commits_total") == commits + 1
            assert page("tailrace_appended_bytes_total") == 13
            assert page("tailrace_appended_messages_total") == 2

    run(check())


def test_errors_start_at_zero_and_are_counted_by_code() -> None:
    async def check() -> None:
        async with opened() as server:
            assert not any(server.page().labels("tailrace_refused_total", "code").values())
            server.count_response("read", 404, "stream-not-found")
            server.count_response("read", 404, "stream-not-found")
            server.metrics.count_refusal("request-malformed")
            counts = server.page().labels("tailrace_refused_total", "code")
            assert {code: count for code, count in counts.items() if count} == {
                "stream-not-found": 2, "request-malformed": 1,
            }  # fmt: skip

    run(check())


def test_the_caches_are_counted(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as server:
            await run_every_command(server)
        async with opened(tmp_path) as server:
            before = server.page()
            for _ in range(5):
                server.engine.find(b"bucket\0stream")
            after = server.page()
            assert after("tailrace_stream_cache_misses_total") == 1
            assert after("tailrace_stream_cache_hits_total") == 4
            assert after("tailrace_streams_hot") == 1
            looks = ("tailrace_block_cache_hits_total", "tailrace_block_cache_misses_total")
            assert sum(map(after, looks)) > sum(map(before, looks))

    run(check())


def test_stored_bytes_are_counted_by_kind_of_file(tmp_path: Path) -> None:
    async def check() -> None:
        async with opened(tmp_path) as server:
            await server.create_bucket("bucket")
            await server.append("bucket", "s", random.Random(1).randbytes(100_000))
            page = server.page()
            stored = page.labels("tailrace_stored_bytes", "kind")
            assert set(stored) == {"tables", "blobs", "memtables", "log", "snapshots"}
            assert stored["log"] == size_of_logs(tmp_path) > 100_000
            assert stored["memtables"] > 100_000
            assert page("tailrace_disk_free_bytes") > 0
        async with opened(tmp_path) as server:
            # Closing the database flushed it; large messages are in blob files.
            stored = server.page().labels("tailrace_stored_bytes", "kind")
            assert stored["blobs"] > 100_000 > stored["tables"] > 0

    run(check())


def test_snapshot_files_are_counted_when_created_and_removed(tmp_path: Path) -> None:
    def files() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "snapshots").iterdir())

    store = RocksStore(tmp_path)
    assert store.sizes()["snapshots"] == 0
    spools = [store.spool(number) for number in range(3)]
    for spool in spools:
        spool.write(b"x" * SNAPSHOT_CHUNK_BYTES)
        spool.finish()
    assert store.sizes()["snapshots"] == files() > 3 * SNAPSHOT_CHUNK_BYTES
    spools[0].discard()
    assert store.sizes()["snapshots"] == files()
    unfinished = store.spool(4)
    unfinished.write(b"x" * SNAPSHOT_CHUNK_BYTES)
    unfinished.discard()
    assert store.sizes()["snapshots"] == files()
    store.close()
    # No snapshot refers to these files, so opening the store removes them.
    store = RocksStore(tmp_path)
    assert store.sizes()["snapshots"] == files() == 0
    store.close()
