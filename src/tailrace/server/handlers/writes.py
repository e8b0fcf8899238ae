"""Requests that change a stream: headers become a command, its outcome a response."""

import re
from typing import Final

from tailrace.engine.engine import Engine, Outcome
from tailrace.protocol.content_type import DEFAULT_CONTENT_TYPE, essence
from tailrace.protocol.errors import HeaderInvalid, Refusal
from tailrace.protocol.expiry import parse_expires_at, parse_ttl
from tailrace.protocol.limits import (
    PRODUCER_ID_BYTES_MAX,
    PRODUCER_INTEGER_MAX,
    STREAM_SEQ_BYTES_MAX,
)
from tailrace.protocol.machine import Effect
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import Append, Create, Delete
from tailrace.server import headers as h
from tailrace.server.errors import ContentCodingRefused
from tailrace.server.handlers.fork_headers import parse_fork
from tailrace.server.handlers.reads import stream_headers
from tailrace.server.message import Reply, Request, Response
from tailrace.server.problem import problem, reply_unless_refused
from tailrace.server.routing.target import STREAM_PREFIX

__all__ = ["WriteHandlers", "stored_type"]

_PRODUCER_HEADERS: Final = frozenset((b"producer-id", b"producer-epoch", b"producer-seq"))
_FORK_HEADERS: Final = frozenset(
    (b"stream-forked-from", b"stream-fork-offset", b"stream-fork-sub-offset")
)
_INTEGER: Final = re.compile(rb"[0-9]{1,16}")
_APPENDED: Final = 204


class WriteHandlers:
    """PUT, POST and DELETE of streams."""

    def __init__(self, engine: Engine, root: bytes = STREAM_PREFIX) -> None:
        """`root` is the configured root of the base surface."""
        self._engine = engine
        self._root = root

    def create(self, request: Request, reply: Reply) -> None:
        """§5.1; a fork inherits the content type, if it is omitted."""
        headers = request.headers
        content_type: str | None = stored_type(headers)
        fork = None
        if not _FORK_HEADERS.isdisjoint(headers):
            fork = parse_fork(request, self._root)
            if fork is not None and b"content-type" not in headers:
                content_type = None
        ttl = _text(headers.get(b"stream-ttl"), "Stream-TTL")
        expires_at = _text(headers.get(b"stream-expires-at"), "Stream-Expires-At")
        if ttl is not None and expires_at is not None:
            raise HeaderInvalid("Stream-TTL", "and Stream-Expires-At exclude each other")
        command = Create(
            id=self._engine.new_id(),
            content_type=content_type,
            ttl_s=None if ttl is None else parse_ttl(ttl),
            expires_at=None if expires_at is None else parse_expires_at(expires_at),
            closed=_is_true(headers.get(b"stream-closed", b"")),
            body=request.body,
            fork=fork,
        )

        def created(outcome: Outcome) -> None:
            if isinstance(outcome, Refusal):
                reply(problem(outcome))
                return
            verdict, state = outcome
            assert state is not None
            if verdict.effect is Effect.CREATED:
                reply(Response(201, [(h.LOCATION, request.url), *stream_headers(state)]))
            else:
                reply(Response(200, stream_headers(state)))

        self._engine.submit(request.target.key, command, created)

    def append(self, request: Request, reply: Reply) -> None:
        """§5.2, §5.3."""
        headers = request.headers
        if b"content-encoding" in headers:
            _check_coding(headers[b"content-encoding"])
        content_type = headers.get(b"content-type")
        claim = _producer(headers) if not _PRODUCER_HEADERS.isdisjoint(headers) else None
        command = Append(
            request.body,
            content_type.decode("latin-1") if content_type else None,
            b"stream-closed" in headers and _is_true(headers[b"stream-closed"]),
            claim,
            _stream_seq(headers[b"stream-seq"]) if b"stream-seq" in headers else None,
        )

        def appended(outcome: Outcome) -> None:
            if isinstance(outcome, Refusal):
                reply(problem(outcome))
                return
            verdict, state = outcome
            assert state is not None
            response_headers = [(h.STREAM_NEXT_OFFSET, state.tail.encoded()), h.NO_STORE]
            if state.closed:
                response_headers.append((h.STREAM_CLOSED, h.TRUE))
            status = _APPENDED
            if claim is not None:
                producer = state.producers.get(claim.id)
                if producer is not None:
                    response_headers.append((h.PRODUCER_EPOCH, b"%d" % producer.epoch))
                    response_headers.append((h.PRODUCER_SEQ, b"%d" % producer.last_seq))
                if verdict.effect is Effect.APPENDED:
                    # §5.2.1: new data of a producer is 200, a retry 204.
                    status = 200
            reply(Response(status, response_headers))

        self._engine.submit(request.target.key, command, appended)

    def delete(self, request: Request, reply: Reply) -> None:
        """§5.4."""
        deleted = reply_unless_refused(reply, Response(204, [h.NO_STORE]))
        self._engine.submit(request.target.key, Delete(), deleted)


def stored_type(headers: dict[bytes, bytes]) -> str:
    """Return the content type of a body that is to be stored: of a stream, or of a snapshot."""
    if b"content-encoding" in headers:
        _check_coding(headers[b"content-encoding"])
    content_type = _text(headers.get(b"content-type"), "Content-Type") or DEFAULT_CONTENT_TYPE
    essence(content_type)
    return content_type


def _text(value: bytes | None, header: str) -> str | None:
    """Return the value of a header, if it was sent."""
    if value is None:
        return None
    text = value.decode("latin-1")
    if not text.isascii():
        raise HeaderInvalid(header, "must be ASCII")
    return text


def _check_coding(value: bytes) -> None:
    if value.lower() not in (b"", b"identity"):
        raise ContentCodingRefused


def _is_true(value: bytes) -> bool:
    """§4.1: only `true`, in any case, closes a stream."""
    return value.lower() == b"true"


def _stream_seq(value: bytes) -> str:
    if not value:
        raise HeaderInvalid("Stream-Seq", "must not be empty")
    if len(value) > STREAM_SEQ_BYTES_MAX:
        raise HeaderInvalid("Stream-Seq", f"may have {STREAM_SEQ_BYTES_MAX} bytes at most")
    return value.decode("latin-1")


def _producer(headers: dict[bytes, bytes]) -> ProducerHeaders:
    """§5.2.1: if one producer header is sent, all three must be."""
    producer_id = headers.get(b"producer-id")
    epoch = headers.get(b"producer-epoch")
    seq = headers.get(b"producer-seq")
    if producer_id is None or epoch is None or seq is None:
        raise HeaderInvalid(
            "Producer-Id", "goes together with Producer-Epoch and Producer-Seq: send all or none"
        )
    if not producer_id:
        raise HeaderInvalid("Producer-Id", "must not be empty")
    if len(producer_id) > PRODUCER_ID_BYTES_MAX:
        raise HeaderInvalid("Producer-Id", f"may have {PRODUCER_ID_BYTES_MAX} bytes at most")
    return ProducerHeaders(
        producer_id.decode("latin-1"),
        _integer(epoch, "Producer-Epoch"),
        _integer(seq, "Producer-Seq"),
    )


def _integer(value: bytes, header: str) -> int:
    if not _INTEGER.fullmatch(value) or (number := int(value)) > PRODUCER_INTEGER_MAX:
        raise HeaderInvalid(header, f"must be a whole number from 0 to {PRODUCER_INTEGER_MAX}")
    return number
