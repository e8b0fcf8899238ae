"""
`POST /-/rows`: the messages of many ranges of many streams, as one Arrow stream.

Rule 1: a range is read from one durable state, which is looked up, and pinned, only while the range
is read. If a range has been removed meanwhile, a row says so, and the next range follows.

Rule 2: time and memory of a request are bounded. Batches are made as the peer reads them, and the
loop runs other work after each.

Rule 3: a response can be cut off anywhere. Each complete record batch is valid. A client requests a
range without a final row again, from its last `next_offset`.

Rule 4: credentials are checked again at every step. Once they are invalid, the remaining ranges are
refused, one by one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tailrace.engine.engine import Engine
from tailrace.engine.errors import StorageDamaged
from tailrace.engine.read import check_bounds, locate, read_records
from tailrace.protocol.errors import OffsetGone, QueryInvalid, Refusal
from tailrace.protocol.offset import BEGINNING, START, Offset, parse_offset
from tailrace.protocol.state import StreamState
from tailrace.server import headers as h
from tailrace.server.compress import negotiate
from tailrace.server.errors import ArrowMissing, RequestInvalid
from tailrace.server.guard.access import Access, Principal
from tailrace.server.guard.access.errors import CredentialsRefused
from tailrace.server.handlers.bulk.stream_reference import Source, StreamReference, decode_body
from tailrace.server.handlers.reads import ReadStart
from tailrace.server.message import Request, Response
from tailrace.server.problem import problem
from tailrace.server.streaming_body import streaming_response

if TYPE_CHECKING:
    from tailrace.server.handlers.bulk.arrow import RowBatches

__all__ = ["RowsHandler"]

RANGES_MAX: Final = 10_000
BYTES_DEFAULT: Final = 64 << 20
BYTES_MAX: Final = 1 << 30
SLICE_BYTES: Final = 1 << 20
TURN_S: Final = 0.002
"""At most this long, small ranges occupy a turn of the loop."""

_DEFAULT_COLUMNS: Final = (
    "range", "bucket", "stream", "message", "offset", "next_offset", "time", "content_type",
    "value",
)  # fmt: skip
_OPTIONAL_COLUMNS: Final = ("size", "producer")
_ALWAYS_COLUMNS: Final = ("range", "next_offset", "status", "detail")


class _Range(StreamReference, kw_only=True, rename={"start": "from"}):
    """A range of a stream; by default from its beginning to its current tail."""

    start: str = BEGINNING
    until: str | None = None

    def source(self, index: int, state: StreamState) -> Source:
        name = self.path if self.path is not None else self.stream
        assert name is not None
        return Source(index, self.bucket, name, state.content_type, state.json)


class _Request(msgspec.Struct):
    ranges: list[_Range]
    columns: list[str] | None = None
    bytes_max: int = BYTES_DEFAULT


log = structlog.get_logger("tailrace")

_decode: Final = msgspec.json.Decoder(_Request).decode


class RowsHandler:
    """POST of `/-/rows`."""

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access
        self._row_batches: type[RowBatches] | None = None

    async def read(self, request: Request) -> Response:
        """Return the head of the response, and the source of its body."""
        query = decode_body(request, _decode)
        if len(query.ranges) > RANGES_MAX:
            raise RequestInvalid(f"a request may have {RANGES_MAX} ranges at most")
        if not 1 <= query.bytes_max <= BYTES_MAX:
            raise RequestInvalid(f"bytes_max must be from 1 to {BYTES_MAX}")
        columns = _columns(query.columns)
        if self._row_batches is None:
            # In a thread: the import takes a third of a second, once.
            self._row_batches = await asyncio.to_thread(_import_batches)
        batches = self._row_batches(columns)
        body = _Body(self._engine, query, batches, request.principal, self._access)
        headers = [
            (h.CONTENT_TYPE, b"application/vnd.apache.arrow.stream"),
            h.NO_STORE,
            (b"Vary", b"Accept-Encoding"),
        ]
        coding = negotiate(request.headers.get(b"accept-encoding", b""))
        return streaming_response(headers, body.pieces(), body.release, coding)


def _import_batches() -> "type[RowBatches]":
    """Import pyarrow and numpy, which are slow to load and optional."""
    try:
        from tailrace.server.handlers.bulk.arrow import RowBatches
    except ImportError as error:
        raise ArrowMissing(str(error)) from None
    return RowBatches


def _columns(requested: Sequence[str] | None) -> list[str]:
    columns = _DEFAULT_COLUMNS if requested is None else requested
    for name in columns:
        if name not in _DEFAULT_COLUMNS and name not in _OPTIONAL_COLUMNS:
            known = ", ".join((*_DEFAULT_COLUMNS, *_OPTIONAL_COLUMNS))
            raise RequestInvalid(f"there is no column {name[:64]!r}; columns are {known}")
    # In a fixed order, each once.
    return [name for name in (*_DEFAULT_COLUMNS, *_OPTIONAL_COLUMNS, "status", "detail")
            if name in columns or name in _ALWAYS_COLUMNS]  # fmt: skip


class _Body:
    """The body of one response, made range by range."""

    def __init__(
        self,
        engine: Engine,
        query: _Request,
        batches: "RowBatches",
        principal: Principal | None,
        access: Access | None = None,
    ) -> None:
        self._engine = engine
        self._access = access
        self._principal = principal
        self._ranges = query.ranges
        self._left = query.bytes_max
        self._batches = batches
        self._index = 0
        self._reading: _Reading | None = None
        self._unpin: Callable[[], None] | None = None

    def release(self) -> None:
        """Unpin the state that is being read, if any is."""
        if self._unpin is not None:
            self._unpin()
            self._unpin = None

    async def pieces(self) -> AsyncIterator[bytes | memoryview]:
        batches = self._batches
        yield batches.head
        done = False
        while not done:
            done = self._fill()
            if done or batches.full:
                for piece in batches.take():
                    yield piece
            await asyncio.sleep(0)
        yield batches.end_mark

    def _fill(self) -> bool:
        """Read until a batch is full or the turn is over; true at the end of all ranges."""
        until = monotonic() + TURN_S
        while self._left > 0 and self._index < len(self._ranges):
            try:
                self._step()
            except Refusal as refusal:
                self._refuse(refusal)
            if self._batches.full or monotonic() > until:
                self._pin()
                return False
        return True

    def _step(self) -> None:
        """Read the next slice of the current range."""
        access, principal = self._access, self._principal
        if access is not None and principal is not None and not access.is_valid(principal):
            # A slow peer may read for longer than its credentials are valid.
            raise CredentialsRefused("the credentials of this request are no longer valid")
        if self._reading is None:
            self._reading = self._begin(self._ranges[self._index])
        reading = self._reading
        if reading.at != reading.until:
            piece = read_records(
                self._engine.store,
                reading.state,
                reading.at,
                reading.until,
                SLICE_BYTES,
                self._left,
                producers=self._batches.has_producers,
            )
            self._batches.add(reading.source, piece)
            self._left -= piece.end.byte - piece.start.byte
            reading.at = piece.end
        if reading.at == reading.until:
            self._end("end", None, reading.at.token())

    def _begin(self, requested: _Range) -> "_Reading":
        """Find the stream of a range, as a read does."""
        stream = self._engine.find(requested.readable_key(self._principal))
        state = stream.durable
        assert state is not None
        self._engine.touch(stream)
        beginning = requested.start == BEGINNING
        position = ReadStart(START if beginning else parse_offset(requested.start), beginning)
        position.check(state)
        assert position.offset is not None
        until = state.tail if requested.until is None else parse_offset(requested.until)
        check_bounds(state, position.offset)
        locate(self._engine.store, state, until)
        if until < position.offset:
            raise QueryInvalid("until", "must not be before from")
        return _Reading(requested.source(self._index, state), state, position.offset, until)

    def _pin(self) -> None:
        """Keep what is being read in storage until the next turn."""
        if self._reading is not None and self._unpin is None:
            self._unpin = self._engine.pins.hold(self._reading.state)

    def _end(self, status: str, detail: str | None, offset: str | None) -> None:
        self._batches.end(self._index, status, detail, offset)
        self._reading = None
        self._index += 1
        self.release()

    def _refuse(self, refusal: Refusal) -> None:
        """End a range that cannot be read by a row with the error."""
        if isinstance(refusal, StorageDamaged):
            log.error("stored data cannot be read: check the disk", detail=refusal.detail)
        earliest = refusal.earliest if isinstance(refusal, OffsetGone) else None
        self._end(refusal.code, problem(refusal).body.decode(), earliest)


@dataclass(slots=True)
class _Reading:
    """The progress of one range."""

    source: Source
    state: StreamState
    at: Offset
    until: Offset
