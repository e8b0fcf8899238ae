"""§5.6, §6: catch-up reads, offsets, and responses that end at the chunk limit."""

from __future__ import annotations

import itertools
import re

from tests.support.looping import for_each
from tests.support.streams import Api, check_problem

OFFSET = re.compile(r"[0-9]{16}_[0-9]{16}")
JSON = "application/json"


def test_get_from_the_start(api: Api) -> None:
    """A missing offset and -1 both read from the beginning."""
    path = api.create(body=b"abc")
    api.append(path, b"def")
    for query in ("", "offset=-1", "offset=0000000000000000_0000000000000000", "live=false"):
        response = api.get(path, query)
        assert (response.status, response.body) == (200, b"abcdef")
        assert response.headers["content-type"] == "text/plain"
        assert response.headers["stream-next-offset"] == "0000000000000002_0000000000000006"
        assert response.headers["stream-up-to-date"] == "true"
        assert "stream-closed" not in response.headers


def test_get_of_a_stream_that_does_not_exist_is_404(api: Api) -> None:
    """Also with an invalid offset."""
    check_problem(api.get(api.path()), 404, "stream-not-found")
    check_problem(api.get(api.path(), "offset=0000000000000009_0000000000000009"), 404)


def test_get_at_tail_is_empty_and_up_to_date(api: Api) -> None:
    """200, an empty body, Stream-Next-Offset equal to the requested offset."""
    path = api.create(body=b"abc")
    tail = api.tail(path)
    response = api.get(path, f"offset={tail}")
    assert (response.status, response.body) == (200, b"")
    assert response.headers["stream-next-offset"] == tail
    assert response.headers["stream-up-to-date"] == "true"
    assert "stream-closed" not in response.headers


def test_get_at_tail_of_closed_stream_is_empty_with_stream_closed(api: Api) -> None:
    """The canonical EOF signal."""
    path = api.create(body=b"abc")
    tail = api.tail(path)
    api.close_stream(path)
    response = api.get(path, f"offset={tail}")
    assert (response.status, response.body) == (200, b"")
    assert response.headers["stream-closed"] == "true"
    assert response.headers["stream-up-to-date"] == "true"
    assert response.headers["stream-next-offset"] == tail


def test_the_final_chunk_of_a_closed_stream_has_stream_closed(api: Api) -> None:
    """If the stream is closed already, the response that reaches the end has the header."""
    path = api.create(body=b"abc", headers={"Stream-Closed": "true"})
    response = api.get(path)
    assert (response.body, response.headers["stream-closed"]) == (b"abc", "true")


def test_reads_from_every_boundary(api: Api) -> None:
    """A read from the offset of an append returns exactly the later content."""
    path = api.create()
    pieces = [b"a", b"bb", b"", b"ccc", b"\n", b"d" * 100]
    offsets = [api.tail(path)]
    for piece in filter(None, pieces):
        offsets.append(api.append(path, piece))
    contents = list(itertools.accumulate(filter(None, pieces), initial=b""))
    for offset, before in zip(offsets, contents, strict=True):
        assert api.get(path, f"offset={offset}").body == contents[-1][len(before) :]


def test_reads_from_every_boundary_inside_a_json_batch(api: Api) -> None:
    """An offset can be inside a batch; the responses together have each message once."""
    path = api.create(JSON)
    api.append(path, b'[1, "two", {"three": 3}]', content_type=JSON)
    api.append(path, b"[[4],[5]]", content_type=JSON)
    sizes = [len(text) + 1 for text in ("1", '"two"', '{"three": 3}', "[4]", "[5]")]
    bodies = [
        b'[1,"two",{"three": 3},[4],[5]]',
        b'["two",{"three": 3},[4],[5]]',
        b'[{"three": 3},[4],[5]]',
        b"[[4],[5]]",
        b"[[5]]",
        b"[]",
    ]
    ends = itertools.accumulate(sizes, initial=0)
    for number, (byte, body) in enumerate(zip(ends, bodies, strict=True)):
        response = api.get(path, f"offset={number:016d}_{byte:016d}")
        assert (response.status, response.body) == (200, body)


def test_offsets_sort_as_text(api: Api) -> None:
    """Two numbers of 16 digits: no reserved characters, strictly increasing as text."""
    path = api.create()
    offsets = [api.tail(path)]
    offsets += [api.append(path, b"x" * size) for size in (1, 9, 90, 900, 9, 1)]
    for offset in offsets:
        assert OFFSET.fullmatch(offset)
        assert not set(offset) & set(",&=?/")
        assert offset not in ("-1", "now")
    assert offsets == sorted(set(offsets))


def test_offsets_count_messages_and_bytes(api: Api) -> None:
    """One message per append; in JSON mode one per element."""
    path = api.create()
    assert api.append(path, b"[1,2,3]") == "0000000000000001_0000000000000007"
    path = api.create(JSON)
    assert api.append(path, b"[1,2,3]", content_type=JSON).startswith("0000000000000003_")


def test_an_offset_may_be_percent_encoded(api: Api) -> None:
    path = api.create(body=b"abc")
    offset = api.tail(path)
    api.append(path, b"def")
    encoded = "".join(f"%{ord(char):02X}" for char in offset)
    assert api.get(path, f"offset={encoded}").body == b"def"
    assert api.get(path, "offset=%2D1").body == b"abcdef"


def test_unknown_parameters_are_ignored(api: Api) -> None:
    """§9.1: parameters of extensions must not break a read."""
    path = api.create(body=b"abc")
    assert api.get(path, "future=1&offset=-1&x&future=2&=&%ff=%ff").body == b"abc"


# -- limits of a response (100 bytes on this server) ----------------------------------------------


def test_partial_data_is_neither_up_to_date_nor_closed(short: Api) -> None:
    """Both headers are absent until the last response, also on a closed stream."""
    path = short.create()
    messages = [b"%02d" % n * 20 for n in range(7)]
    for message in messages:
        short.append(path, message)
    short.close_stream(path)
    offset, seen, responses = "-1", b"", 0
    while True:
        response = short.get(path, f"offset={offset}")
        seen += response.body
        offset = response.headers["stream-next-offset"]
        responses += 1
        assert 0 < len(response.body) <= 100
        assert len(response.body) % 40 == 0
        if seen == b"".join(messages):
            break
        assert "stream-up-to-date" not in response.headers
        assert "stream-closed" not in response.headers
    assert responses == 4
    assert response.headers["stream-up-to-date"] == "true"
    assert response.headers["stream-closed"] == "true"


@for_each("sizes", [[100], [101], [99, 1], [99, 2], [1, 100], [500, 1, 500], [50, 50, 50]])
def test_a_chunk_ends_at_a_message_boundary(short: Api, sizes: list[int]) -> None:
    """It is at most the limit, or one single message that is larger."""
    path = short.create()
    for size in sizes:
        short.append(path, b"m" * size)
    offset, lengths = "-1", []
    while True:
        response = short.get(path, f"offset={offset}")
        lengths.append(len(response.body))
        offset = response.headers["stream-next-offset"]
        if response.headers.get("stream-up-to-date") == "true":
            break
    assert sum(lengths) == sum(sizes)
    bounds = set(itertools.accumulate(sizes))
    assert set(itertools.accumulate(lengths)) <= bounds
    assert all(length <= 100 or length in sizes for length in lengths)


def test_a_chunk_can_split_a_json_batch(short: Api) -> None:
    """Between its elements; every response is a JSON array, and together they have all elements."""
    path = short.create(JSON)
    elements = [b'{"n":%d,"pad":"%b"}' % (n, b"p" * n) for n in range(30)]
    short.append(path, b"[" + b",".join(elements) + b"]", content_type=JSON)
    offset, seen = "-1", []
    while True:
        response = short.get(path, f"offset={offset}")
        assert response.body[:1] + response.body[-1:] == b"[]"
        seen.append(response.body[1:-1])
        offset = response.headers["stream-next-offset"]
        if response.headers.get("stream-up-to-date") == "true":
            break
    assert len(seen) > 5
    assert b",".join(seen) == b",".join(elements)


def test_a_chunk_that_ends_exactly_at_the_tail_is_up_to_date(short: Api) -> None:
    """The chunk limit and the tail are the same position."""
    path = short.create(body=b"x" * 100)
    response = short.get(path)
    assert (len(response.body), response.headers["stream-up-to-date"]) == (100, "true")


def test_a_message_larger_than_a_chunk_is_returned_whole(api: Api) -> None:
    """The default chunk of a long-poll is 1 MiB."""
    path = api.create("application/octet-stream")
    data = bytes(range(256)) * (12 << 10)
    api.append(path, data, content_type="application/octet-stream")
    api.append(path, b"after", content_type="application/octet-stream")
    response = api.get(path, "offset=-1&live=long-poll")
    assert response.body == data
    assert "stream-up-to-date" not in response.headers
    assert api.get(path, f"offset={response.headers['stream-next-offset']}").body == b"after"
