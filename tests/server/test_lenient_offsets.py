"""
Decision 6: on the base surface, offsets that a client computed are read from the boundary before.

`y-durable-streams` adds one to the byte of an offset, and reads from there. Buckets are strict, and
so is the base surface with `--offsets strict`.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.server.conftest import LONG, Start
from tests.support.looping import for_each
from tests.support.publishing import offset
from tests.support.streams import Api, check_problem, text_of

pytestmark = pytest.mark.every_kind

JSON = "application/json"


@pytest.fixture
def lenient(api: Api) -> Iterator[Api]:
    """The base surface, also where other tests use buckets."""
    base = Api(api.server)
    yield base
    base.close()


@pytest.fixture
def strict(start: Start) -> Iterator[Api]:
    api = Api(start(*LONG, "--offsets", "strict"))
    yield api
    api.close()


def test_any_offset_is_read_from_the_boundary_before_it(lenient: Api) -> None:
    """Neither its message nor its byte is past the given one: nothing is skipped."""
    path = lenient.create(JSON)
    lenient.append(path, b"[1,22,3]", content_type=JSON)
    lenient.append(path, b"[4]", content_type=JSON)
    boundaries = [(0, 0), (1, 2), (2, 5), (3, 7), (4, 9)]
    bodies = [b"[1,22,3,4]", b"[22,3,4]", b"[3,4]", b"[4]", b"[]"]
    for message in range(7):
        for byte in range(13):
            response = lenient.get(path, f"offset={offset(message, byte)}")
            if message > 4 or byte > 10:
                check_problem(response, 400, "offset-beyond-tail")
                continue
            before = max(at for at in boundaries if at[0] <= message and at[1] <= byte)
            assert (response.status, response.body) == (200, bodies[boundaries.index(before)])
            # The headers are those of a read from the boundary.
            exact = lenient.get(path, f"offset={offset(*before)}")
            names = ("etag", "stream-next-offset", "stream-up-to-date", "cache-control")
            assert [response.headers[name] for name in names] == [
                exact.headers[name] for name in names
            ]


def test_an_offset_one_byte_past_each_boundary(lenient: Api) -> None:
    """What `y-durable-streams` requests; also of messages of one byte."""
    path = lenient.create()
    tails = [lenient.tail(path), *(lenient.append(path, data) for data in (b"a", b"bcd", b"e"))]
    for tail, rest in zip(tails, (b"abcde", b"bcde", b"e", b""), strict=True):
        message, byte = map(int, tail.split("_"))
        response = lenient.get(path, f"offset={offset(message, byte + 1)}")
        assert (response.status, response.body) == (200, rest)
        assert response.headers["stream-next-offset"] == tails[-1]


@for_each("token", ["1_3", "01_3", "1_0003", "1_" + "0" * 20 + "3", "0" * 30 + "1_4"])
def test_an_offset_of_any_width(lenient: Api, token: str) -> None:
    path = lenient.create(body=b"abc")
    lenient.append(path, b"def")
    response = lenient.get(path, f"offset={token}")
    assert (response.status, response.body) == (200, b"def")


@for_each("token", ["1", "_", "1_", "_1", "1_2_3", "-1_2", "+1_2", "1.0_2", "a_b", "1 _2", "٣_٣"])
def test_what_is_not_two_numbers_is_refused(lenient: Api, token: str) -> None:
    path = lenient.create(body=b"abc")
    check_problem(lenient.get(path, f"offset={quote(token)}"), 400, "offset-invalid")


@for_each("token", ["3_7", "2_8", "2_" + "9" * 32, "9" * 16 + "_" + "9" * 16])
def test_an_offset_further_past_the_tail_is_refused(lenient: Api, token: str) -> None:
    """So that a client of a restored backup notices."""
    path = lenient.create(body=b"abc")
    lenient.append(path, b"def")
    check_problem(lenient.get(path, f"offset={token}"), 400, "offset-beyond-tail")


def test_live_reads_start_at_the_boundary_too(lenient: Api) -> None:
    path = lenient.create(body=b"abc")
    tail = lenient.append(path, b"def")
    response = lenient.get(path, f"offset={offset(1, 4)}&live=long-poll")
    assert (response.status, response.body) == (200, b"def")
    with lenient.sse(path, f"offset={offset(1, 4)}") as events:
        assert text_of(events.until(tail=tail)) == "def"


def test_live_reads_wait_at_one_byte_past_the_tail(lenient: Api) -> None:
    """It is the tail: they get what is appended next, and all of it."""
    path = lenient.create(body=b"abc")
    with lenient.connect() as poll, lenient.sse(path, f"offset={offset(1, 4)}") as events:
        assert events.next().json["streamNextOffset"] == offset(1, 3)
        poll.send_request("GET", f"{path}?offset={offset(1, 4)}&live=long-poll")
        tail = lenient.append(path, b"def")
        assert text_of(events.until(tail=tail)) == "def"
        assert poll.read_response().body == b"def"


def test_until_is_strict(lenient: Api) -> None:
    """It is an extension of ours, which no published client computes."""
    path = lenient.create(body=b"abc")
    lenient.append(path, b"def")
    query = f"offset={offset(0, 1)}&until={offset(1, 4)}"
    check_problem(lenient.get(path, query), 400, "offset-misaligned")
    assert lenient.get(path, f"offset={offset(0, 1)}&until={offset(1, 3)}").body == b"abc"


@for_each("live", ["", "&live=long-poll", "&live=sse"])
@for_each(
    ("token", "code"),
    [
        (offset(0, 1), "offset-misaligned"),
        (offset(1, 4), "offset-misaligned"),
        (offset(2, 7), "offset-beyond-tail"),
        ("1_3", "offset-invalid"),
    ],
)
def test_buckets_and_strict_servers_refuse_other_offsets(
    api: Api, strict: Api, live: str, token: str, code: str
) -> None:
    bucketed = Api(api.server, api.new_bucket())
    for surface in (bucketed, strict):
        path = surface.create(body=b"abc")
        surface.append(path, b"def")
        check_problem(surface.get(path, f"offset={token}{live}"), 400, code)
    bucketed.close()
