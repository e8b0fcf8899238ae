"""
Generated requests against a live server and a naive model of one stream.

After every example: no 500, no hang (every read has a timeout), the process runs, and the content
of the stream matches the model. TAILRACE_FUZZ_EXAMPLES sets the number of examples per test, with
a new random seed in every run; without it a fixed set runs (see `conftest`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.http import Connection, Response
from tests.support.server import ServerProcess
from tests.support.streams import Api, check_common, check_problem

fuzz = settings.get_profile("wire")


class Fuzzed(Api):
    """An Api that checks the health of the server."""

    def speak(self, pieces: list[bytes], methods: list[str] | None = None) -> list[Response]:
        """
        Send the pieces one by one, close our side, and read responses until the server closes its.

        `methods` are the methods of the requests, if known; the rest are assumed to be GET.
        A reset after a refusal is not a fault: what the server did not read it need not keep.
        """
        responses: list[Response] = []
        with self.connect() as connection:
            try:
                for piece in pieces:
                    connection.send(piece)
                connection.sock.shutdown(1)
            except (BrokenPipeError, ConnectionResetError, OSError):
                pass
            try:
                while not _at_end(connection):
                    method = (
                        methods[len(responses)]
                        if methods and len(responses) < len(methods)
                        else "GET"
                    )
                    responses.append(connection.read_response(method))
            except ConnectionResetError:
                pass
        for response in responses:
            check_common(response)
            assert response.status < 500 or response.status in (501, 505), response
            if response.status >= 400 and response.body:
                check_problem(response, response.status)
        assert self.server.running
        return responses


def _at_end(connection: Connection) -> bool:
    return connection.closed_by_peer() if not connection._buffer else False


@pytest.fixture(scope="module")
def fuzzed(wire_server: ServerProcess) -> Iterator[Fuzzed]:
    """The server that all examples share."""
    fuzzed = Fuzzed(wire_server)
    yield fuzzed
    fuzzed.close()


# -- well-formed requests ------------------------------------------------------------------------


@dataclass
class Model:
    """A naive model of one plain-text stream."""

    content: bytes = b""
    messages: int = 0
    closed: bool = False
    seq: bytes | None = None
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def tail(self) -> str:
        return f"{self.messages:016d}_{len(self.content):016d}"

    def append(self, step: Step) -> int:
        """The status of an append; the model changes if it is new data."""
        if step.producer is not None:
            producer, epoch, number = step.producer
            known = self.producers.get(producer)
            if known is not None and epoch < known[0]:
                return 403
            if self.closed:
                return 409
            if known is not None and epoch == known[0] and number <= known[1]:
                return 204
        if self.closed:
            return 409
        if step.body and step.content_type is None:
            return 400
        if step.body and step.content_type != "text/plain":
            return 409
        if not step.body:
            return 400
        if step.producer is not None:
            if known is None or epoch == known[0]:
                expected = 0 if known is None else known[1] + 1
                if number != expected:
                    return 409
            elif number != 0:
                return 400
        if step.seq is not None and self.seq is not None and step.seq <= self.seq:
            return 409
        self.content += step.body
        self.messages += 1
        if step.seq is not None:
            self.seq = step.seq
        if step.producer is not None:
            self.producers[producer] = (epoch, number)
            return 200
        return 204


@dataclass(frozen=True)
class Step:
    """One well-formed request."""

    method: str
    body: bytes = b""
    content_type: str | None = "text/plain"
    chunks: tuple[int, ...] | None = None
    seq: bytes | None = None
    producer: tuple[str, int, int] | None = None
    query: str = ""
    noise: tuple[tuple[str, str], ...] = ()

    def raw(self, path: str) -> bytes:
        lines = [f"{self.method} {path}{self.query} HTTP/1.1".encode(), b"Host: fuzz"]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in self.noise]
        if self.content_type is not None:
            lines.append(b"Content-Type: " + self.content_type.encode())
        if self.seq is not None:
            lines.append(b"Stream-Seq: " + self.seq)
        if self.producer is not None:
            producer, epoch, number = self.producer
            lines += [b"Producer-Id: " + producer.encode(), b"Producer-Epoch: %d" % epoch]
            lines.append(b"Producer-Seq: %d" % number)
        if self.chunks is None:
            lines.append(b"Content-Length: %d" % len(self.body))
            return b"\r\n".join([*lines, b"", self.body])
        lines.append(b"Transfer-Encoding: chunked")
        framed, rest = b"", self.body
        for size in (*self.chunks, len(rest)):
            piece, rest = rest[:size], rest[size:]
            if piece:
                framed += b"%x\r\n%b\r\n" % (len(piece), piece)
        return b"\r\n".join([*lines, b"", framed + b"0\r\n\r\n"])


TOKENS = st.text("abcXYZ019-_", min_size=1, max_size=8)
# Visible Latin-1 and inner spaces, as header values allow.
VALUES = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20
).map(str.strip)
NOISE = st.lists(
    st.tuples(TOKENS.map(lambda name: f"X-{name}"), VALUES),
    max_size=3,
    unique_by=lambda h: h[0].lower(),
).map(tuple)
BODIES = st.one_of(
    st.binary(max_size=40), st.sampled_from([b"", b"0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\r\n"])
)
CHUNKS = st.none() | st.lists(st.integers(1, 12), max_size=5).map(tuple)

appends = st.builds(
    Step,
    method=st.just("POST"),
    body=BODIES,
    content_type=st.sampled_from(["text/plain", "text/plain", "text/plain", "text/html", None]),
    chunks=CHUNKS,
    seq=st.none() | st.sampled_from([b"1", b"10", b"2", b"a", b"\xe4", b"~"]),
    producer=st.none() | st.tuples(st.sampled_from("pq"), st.integers(0, 2), st.integers(0, 3)),
    noise=NOISE,
)
reads = st.builds(
    Step,
    method=st.sampled_from(["GET", "HEAD"]),
    body=BODIES,
    content_type=st.none(),
    chunks=CHUNKS,
    query=st.sampled_from(["", "?offset=-1", "?offset=now", "?offset=bad", "?live=false&x=%00"]),
    noise=NOISE,
)
closes = st.just(Step("POST", noise=(("Stream-Closed", "true"),)))
steps = st.one_of(appends, appends, appends, reads, reads, closes)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data in pieces, cut at these positions."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


@fuzz
@given(
    plan=st.lists(steps, min_size=1, max_size=8), cuts=st.lists(st.integers(0, 5000), max_size=6)
)
def test_valid_requests_behave_like_the_model(
    fuzzed: Fuzzed, plan: list[Step], cuts: list[int]
) -> None:
    """
    Valid requests, pipelined and cut at any position, change a stream like the model.

    Goal: the framing keeps requests separate, and each response belongs to its request.
    Method: predict status, tail and content of every response from a model of thirty lines.
    """
    path = fuzzed.create()
    model = Model()
    packet = b"".join(step.raw(path) for step in plan)
    responses = fuzzed.speak(split(packet, cuts), [step.method for step in plan])
    assert len(responses) == len(plan)
    for step, response in zip(plan, responses, strict=True):
        if step.method == "POST" and step.noise[:1] == (("Stream-Closed", "true"),):
            model.closed = True
            assert response.status == 204
        elif step.method == "POST":
            assert response.status == model.append(step), (step, response)
        elif step.method == "GET" and step.query == "?offset=bad":
            assert response.status == 400
            continue
        elif step.method == "GET":
            assert response.body == (b"" if "now" in step.query else model.content)
        if response.status < 300:
            assert response.headers["stream-next-offset"] == model.tail
    assert fuzzed.read_all(path) == model.content
    assert ("stream-closed" in fuzzed.head(path).headers) is model.closed
    assert fuzzed.tail(path) == model.tail


# -- invalid requests ----------------------------------------------------------------------------


def is_subsequence(part: bytes, whole: bytes) -> bool:
    """Whether the bytes of `part` occur in `whole` in their order."""
    rest = iter(whole)
    return all(byte in rest for byte in part)


def is_new_data(response: Response) -> bool:
    """Whether this response acknowledges an append: 200 with a producer, 204 without."""
    if "stream-next-offset" not in response.headers or "etag" in response.headers:
        return False
    return response.status == (200 if "producer-seq" in response.headers else 204)


@dataclass(frozen=True)
class Mutation:
    """A change of some bytes at a position."""

    place: int
    removed: int
    inserted: bytes

    def apply(self, data: bytes) -> bytes:
        at = self.place % (len(data) + 1)
        return data[:at] + self.inserted + data[at + self.removed :]


mutations = st.lists(
    st.builds(
        Mutation,
        st.integers(0, 2000),
        st.integers(0, 4),
        st.one_of(
            st.binary(max_size=4),
            st.sampled_from(
                [
                    b"\r\n",
                    b"\r\n\r\n",
                    b"\n",
                    b":",
                    b" ",
                    b"\0",
                    b"0\r\n\r\n",
                    b"chunked",
                    b"-1",
                    b"%",
                    b"HTTP/1.1",
                ]
            ),
        ),
    ),
    min_size=1,
    max_size=3,
)


@fuzz
@given(
    plan=st.lists(st.one_of(appends, appends, reads), min_size=1, max_size=4),
    changes=mutations,
    cuts=st.lists(st.integers(0, 5000), max_size=4),
)
def test_mutated_requests_append_what_was_acknowledged(
    fuzzed: Fuzzed, plan: list[Step], changes: list[Mutation], cuts: list[int]
) -> None:
    """
    Valid requests with a few bytes changed: the stream has exactly the acknowledged messages.

    Goal: nothing half-read is ever appended. Method: as many messages are in as there were
    responses for new data, and all their bytes were sent, in that order.
    """
    path = fuzzed.create()
    packet = b"".join(step.raw(path) for step in plan)
    for change in changes:
        packet = change.apply(packet)
    # Answers to HEAD have no body; which requests the server sees is not known here.
    packet = packet.replace(b"HEAD ", b"GET ")
    responses = fuzzed.speak(split(packet, cuts))
    content, tail = fuzzed.read_all(path), fuzzed.tail(path)
    new_data = [response for response in responses if is_new_data(response)]
    assert int(tail[:16]) == len(new_data), (packet, responses)
    assert is_subsequence(content, packet)


@fuzz
@given(pieces=st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=5))
@example(pieces=[b"\0" * 50])
@example(pieces=[b"GET"])
@example(pieces=[b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"])
@example(pieces=[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
def test_random_bytes_are_rejected(fuzzed: Fuzzed, pieces: list[bytes]) -> None:
    """With at most one error; then the connection is closed."""
    responses = fuzzed.speak(pieces)
    assert all(400 <= response.status < 500 for response in responses), responses
    assert len(responses) <= 1


HEADER_NAMES = st.sampled_from(
    [
        "Accept",
        "Accept-Encoding",
        "Authorization",
        "Cache-Control",
        "Connection",
        "Content-Type",
        "Cookie",
        "Expect",
        "If-Match",
        "If-None-Match",
        "Origin",
        "Producer-Epoch",
        "Producer-Id",
        "Producer-Seq",
        "Range",
        "Stream-Closed",
        "Stream-Expires-At",
        "Stream-Seq",
        "Stream-TTL",
        "TE",
        "Trailer",
        "Upgrade",
        "X-Forwarded-Proto",
        "X-Forwarded-For",
    ]
)
HEADER_VALUES = st.one_of(
    VALUES,
    st.sampled_from(
        [
            "",
            "true",
            "0",
            "1",
            "-1",
            "60",
            "9007199254740991",
            "text/plain",
            "application/json",
            "2030-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "close",
            "keep-alive",
            "100-continue",
            "*",
            "gzip",
            "br;q=1, *;q=0.1",
            "h2c",
            "upgrade",
        ]
    ),
)


@fuzz
@given(
    method=st.sampled_from(["POST", "PUT", "GET", "HEAD", "DELETE", "OPTIONS"]),
    headers=st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=6),
    typed=st.booleans(),
    body=st.binary(max_size=30),
)
def test_the_status_is_correct_for_any_headers(
    fuzzed: Fuzzed, method: str, headers: list[tuple[str, str]], typed: bool, body: bytes
) -> None:
    """
    Valid framing with any value of any known header: a 2xx append is stored, any other is not.

    A stream that the request deletes or lets expire is gone.
    """
    path = fuzzed.create(body=b"first")
    lines = [f"{method} {path} HTTP/1.1", "Host: fuzz"]
    if typed:
        lines.append("Content-Type: text/plain")
    lines += [f"{name}: {value}" for name, value in headers]
    lines.append(f"Content-Length: {len(body)}")
    packet = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
    responses = fuzzed.speak([packet], [method])
    assert len(responses) == 1, responses
    status = responses[0].status
    if method == "DELETE" and status == 204:
        assert fuzzed.head(path).status == 404
        return
    appended = method == "POST" and status in (200, 204)
    assert fuzzed.read_all(path) == b"first" + (body if appended else b"")


# -- targets and JSON ----------------------------------------------------------------------------


@fuzz
@given(
    name=st.text(
        st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="?#"), max_size=30
    ),
    query=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=30),
)
def test_any_target_gets_a_response(fuzzed: Fuzzed, name: str, query: str) -> None:
    """A stream is created and found at the same target, or the target is rejected."""
    target = f"{fuzzed.path()}{name}"
    created = fuzzed.speak(
        [f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx".encode()]
    )
    assert [response.status for response in created] in ([201], [400])
    found = fuzzed.speak([f"GET {target}?{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode()])
    statuses = [response.status for response in found]
    # A half-closed live read that only waits is disconnected without a response.
    assert statuses in ([200], [400], []), found
    if created[0].status == 400:
        assert statuses == [400]


def strict(text: bytes) -> Any:
    """Parse with Python's parser, without its extensions of JSON."""

    def refuse(_: str) -> Any:
        raise ValueError("not JSON")

    return json.loads(text.decode("utf-8"), parse_constant=refuse)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4, alphabet='abé"\\'), inner, max_size=3)
    ),
    max_leaves=12,
)
dumpers: st.SearchStrategy[Callable[[Any], str]] = st.sampled_from(
    [
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False),
        lambda value: json.dumps(value, indent=2),
        lambda value: json.dumps(value, separators=(" ,\t", "\r\n:")),
    ]
)


@fuzz
@given(value=json_values, dump=dumpers, around=st.sampled_from(["", " ", "\r\n\t "]))
def test_json_is_returned_byte_for_byte(
    fuzzed: Fuzzed, value: Any, dump: Callable[[Any], str], around: str
) -> None:
    """Each element of an array, with any white space around it."""
    path = fuzzed.create("application/json")
    elements = value if isinstance(value, list) else [value]
    spelled = [dump(element).encode() for element in elements]
    if isinstance(value, list):
        body = (
            b"["
            + b",".join(around.encode() + element + around.encode() for element in spelled)
            + b"]"
        )
    else:
        body = around.encode() + spelled[0] + around.encode()
    response = fuzzed.post(path, body, content_type="application/json")
    if value == []:
        check_problem(response, 400, "json-invalid")
        return
    assert response.status == 204, (body, response.body)
    assert fuzzed.get(path).body == b"[" + b",".join(spelled) + b"]"
    offset = response.headers["stream-next-offset"]
    assert int(offset[:16]) == len(elements)


@fuzz
@given(value=json_values, changes=mutations)
def test_json_is_validated_like_by_another_parser(
    fuzzed: Fuzzed, value: Any, changes: list[Mutation]
) -> None:
    """
    Exactly the JSON that an independent parser accepts is accepted.

    Excluded are escapes of lone surrogates, which RFC 8259 leaves open.
    """
    body = json.dumps(value).encode()
    for change in changes:
        body = change.apply(body)
    path = fuzzed.create("application/json")
    status = fuzzed.post(path, body, content_type="application/json").status
    try:
        parsed = strict(body)
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    except ValueError:
        assert status == 400, body
        return
    except RecursionError:
        return
    assert status == (400 if parsed == [] else 204), body
