"""Extensions that the reference server does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.client import AnswerInvalid, Client, NotFound
from tests.client.reference.writing import JSON, numbers


class TestMissingExtensions:
    """Buckets, snapshots and bootstrap are not in the base protocol: each is an error."""

    def test_buckets(self, client: Any) -> None:
        bucket = client.bucket(f"b-{next(numbers)}")
        operations: list[Callable[[], Any]] = [
            bucket.info,
            bucket.delete,
            lambda: list(bucket.streams()),
        ]
        for operation in operations:
            with pytest.raises(NotFound):
                operation()

    def test_a_bucket_is_not_created_as_a_stream(self, client: Any) -> None:
        """Any path is a stream to this server: `PUT /bucket` succeeds, and makes no bucket."""
        with pytest.raises(AnswerInvalid, match="bucket"):
            client.bucket(f"b-{next(numbers)}").create()

    def test_a_stream_where_a_bucket_is_expected(self, client: Any, reference: Any) -> None:
        name = f"b-{next(numbers)}"
        with Client(reference.url) as other:
            # `/v1/stream/../../name` is `/name`.
            other.stream(f"../../{name}").create(JSON, body=b'{"bucket_id": 1}')
        with pytest.raises(AnswerInvalid, match="buckets"):
            client.bucket(name).info()

    def test_a_snapshot_is_not_published_as_a_stream(self, stream: Any) -> None:
        """X§2: the response to a publication is 204. With 201 a stream was created there."""
        tail = stream.create(JSON, body=b"[1,2]").next_offset
        with pytest.raises(AnswerInvalid, match="snapshot"):
            stream.publish_snapshot(b"3", tail)

    def test_no_snapshot_and_no_bootstrap_to_read(self, stream: Any) -> None:
        stream.create(JSON, body=b"[1,2]")
        operations: list[Callable[[], Any]] = [
            stream.snapshot,
            stream.bootstrap,
            lambda: list(stream.bootstrap_parts()),
        ]
        for operation in operations:
            with pytest.raises(NotFound):
                operation()
        head = stream.head()
        assert (head.snapshot_offset, head.earliest_offset) == (None, None)
