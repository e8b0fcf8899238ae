"""A large read of a fork: what it inherits and its own content, in one response."""

from __future__ import annotations

import json
import random

import pytest

from tests.support.publishing import OCTETS, small_buffer_connection
from tests.support.streams import Api

MIB = 1 << 20
JSON = "application/json"
NOISE = random.Random("large forks").randbytes(3 * MIB)


def fork(api: Api, source: str, content_type: str, offset: str | None = None) -> str:
    headers = {"Stream-Forked-From": source, "Content-Type": content_type}
    if offset is not None:
        headers["Stream-Fork-Offset"] = offset
    return api.create(None, headers=headers)


@pytest.mark.every_kind
def test_a_large_fork_is_read_in_one_response(api: Api) -> None:
    """Over a chain of forks, also where a fork begins inside a batch."""
    source = api.create(JSON)
    batch = [{"n": number, "pad": "p" * 400} for number in range(3000)]
    body = json.dumps(batch, separators=(",", ":")).encode()
    api.append(source, body, content_type=JSON)
    api.append(source, body, content_type=JSON)
    size = sum(len(json.dumps(item, separators=(",", ":"))) + 1 for item in batch[:1000])
    child = fork(api, source, JSON, f"{1000:016d}_{size:016d}")
    api.append(child, body, content_type=JSON)
    grandchild = fork(api, child, JSON)
    api.append(grandchild, b'"last"', content_type=JSON)
    api.append(source, b'"not inherited"', content_type=JSON)
    response = api.get(grandchild)
    assert len(response.body) > MIB
    assert response.headers["content-length"] == str(len(response.body))
    assert json.loads(response.body) == [*batch[:1000], *batch, "last"]
    assert response.headers["stream-next-offset"] == api.tail(grandchild)


def test_a_slow_read_of_a_fork_survives_the_deletion_of_everything(api: Api) -> None:
    """The pinned state covers what the fork inherits."""
    source = api.create(OCTETS)
    for _ in range(8):
        api.append(source, NOISE, content_type=OCTETS)
    child = fork(api, source, OCTETS)
    api.append(child, b"own", content_type=OCTETS)
    with small_buffer_connection(api) as connection:
        connection.send_request("GET", child)
        body = connection.iter_body(connection.read_head())
        first = next(body)
        for path in (source, child):
            assert api.request("DELETE", path).status == 204
        assert b"".join((first, *body)) == NOISE * 8 + b"own"


@pytest.mark.every_kind
def test_an_offset_inside_an_inherited_message_is_read_from_before_it(api: Api) -> None:
    base = Api(api.server)
    source = base.create(OCTETS, body=b"abc")
    base.append(source, b"def", content_type=OCTETS)
    child = fork(base, source, OCTETS)
    base.append(child, b"ghi", content_type=OCTETS)
    for byte, rest in ((1, b"abcdefghi"), (4, b"defghi"), (8, b"ghi"), (10, b"")):
        token = f"{byte // 3:016d}_{byte:016d}"
        assert base.get(child, f"offset={token}").body == rest
    base.close()
