"""`fork`, by both clients, against a real server."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.client import Conflict, NotFound, Refused, StreamSoftDeleted
from tailrace.client.requests import sibling_url

TEXT = "text/plain"
JSON = "application/json"
START = "0000000000000000_0000000000000000"


def content(stream: Any) -> bytes:
    return b"".join(chunk.data for chunk in stream.read())


def test_a_fork_begins_with_what_its_source_has(client: Any, stream: Any) -> None:
    stream.create(TEXT, body=b"hello")
    name = stream.url.rpartition("/v1/stream/")[2]
    made = stream.fork(f"{name}/fork é", body=b", world", ttl_s=600)
    assert (made.new, made.content_type) == (True, TEXT)
    fork = client.stream(f"{name}/fork é")
    stream.append(b"!", TEXT)
    assert content(fork) == b"hello, world"
    assert 0 < fork.head().ttl_s <= 600
    assert not stream.fork(f"{name}/fork é", ttl_s=600).new
    with pytest.raises(Conflict):
        stream.fork(f"{name}/fork é", offset=START, ttl_s=600)


def test_offsets_and_sub_offsets(client: Any, stream: Any) -> None:
    stream.create(JSON)
    stream.append_json(1, 2, 3)
    name = stream.url.rpartition("/v1/stream/")[2]
    stream.fork(f"{name}/2", offset=START, sub_offset=2)
    assert [item.value for item in client.stream(f"{name}/2").read_json()] == [1, 2]
    with pytest.raises(Refused) as caught:
        stream.fork(f"{name}/3", offset=START, sub_offset=4)
    assert (caught.value.status, caught.value.code) == (400, "fork-sub-offset-beyond")


def test_a_fork_in_a_bucket(client: Any, stream: Any) -> None:
    bucket = client.bucket("forks-" + stream.url.rpartition("/")[2])
    bucket.create()
    source = bucket.stream("a b")
    source.create(TEXT, body=b"x")
    source.fork("c d")
    assert content(bucket.stream("c d")) == b"x"


def test_a_deleted_source_is_gone(client: Any, stream: Any) -> None:
    stream.create(TEXT, body=b"x")
    name = stream.url.rpartition("/v1/stream/")[2]
    stream.fork(f"{name}/fork")
    stream.delete()
    for use in (stream.head, stream.delete, lambda: stream.append(b"x", TEXT), stream.read_all):
        with pytest.raises(StreamSoftDeleted):
            use()
    with pytest.raises(Conflict):
        stream.create(TEXT)
    with pytest.raises(Conflict):
        stream.fork(f"{name}/another")
    with pytest.raises(NotFound):
        client.stream(f"{name}/nothing").fork(f"{name}/another")


def test_the_url_of_a_sibling() -> None:
    base = "http://host/prefix/v1/stream/a/b"
    assert sibling_url(base, "c d/e") == "http://host/prefix/v1/stream/c%20d/e"
    assert sibling_url("http://host/rooms/a", "c/d") == "http://host/rooms/c%2Fd"
    assert sibling_url(base, "https://other/s") == "https://other/s"
