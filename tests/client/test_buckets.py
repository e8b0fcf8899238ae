"""Buckets and their streams, by both clients."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tailrace.client import Conflict, NotFound
from tests.client.tiers import sync_first

TEXT = "text/plain"
_numbers = itertools.count()


@pytest.fixture
def bucket(client: Any) -> Any:
    """A unique name."""
    return client.bucket(f"client-{next(_numbers)}")


def test_a_bucket_from_creation_to_deletion(bucket: Any) -> None:
    bucket.create()
    with pytest.raises(Conflict):
        bucket.create()
    bucket.stream("s").create(TEXT)
    info = bucket.info()
    assert (info.bucket_id, info.streams) == (bucket.url.rsplit("/", 1)[1], 1)
    with pytest.raises(Conflict):
        bucket.delete()
    bucket.stream("s").delete()
    bucket.delete()
    for operation in (bucket.info, bucket.delete, lambda: list(bucket.streams())):
        with pytest.raises(NotFound):
            operation()


def test_a_stream_needs_its_bucket(bucket: Any) -> None:
    with pytest.raises(NotFound) as caught:
        bucket.stream("s").create(TEXT)
    assert caught.value.code == "bucket-not-found"


@sync_first
def test_a_listing_spans_all_pages(bucket: Any) -> None:
    bucket.create()
    names = [f"é {at:04d}" for at in range(1203)]
    for name in names:
        bucket.stream(name).create(TEXT)
    listed = list(bucket.streams())
    assert [item.stream_id for item in listed] == names
    assert [item.stream_id for item in bucket.streams("é 00", after="é 0050")] == names[51:100]
    assert not any(item.closed or item.size for item in listed)


def test_a_listing_describes_its_streams(bucket: Any) -> None:
    bucket.create()
    last = bucket.stream("s?").create(TEXT, body=b"abc", closed=True)
    (item,) = bucket.streams()
    assert (item.stream_id, item.closed, item.content_type) == ("s?", True, TEXT)
    assert (item.size, item.next_offset) == (3, last.next_offset)
    assert 0 < item.created_at_ms <= item.last_write_at_ms
