"""
`POST /-/rows`: the messages of many ranges of many streams in one answer, as an Arrow stream.

Rule 1: a range is answered from one durable state, which is looked up, and held, only while it is
read. What has gone meanwhile is told by a row of its own, and the next range goes on.

Rule 2: no request decides how long it keeps others waiting, nor how much memory it costs. Batches
are made as the peer reads them, and the loop turns after each.

Rule 3: an answer can be cut anywhere. Whatever arrived of it counts, record batch by record batch:
a range without a row that ends it is asked for again, from the last `next_offset` of it.

Rule 4: a slow peer does not outlive its rights. Whether its credentials still hold is asked again
at every step, and where they do not, all that is left is refused, range by range.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tailrace.engine.core import Engine
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
from tailrace.server.message import Request, Response
from tailrace.server.named import Named, Source, decode_body
from tailrace.server.problem import problem
from tailrace.server.reads import Where
from tailrace.server.streamed import StreamedBody, packed

if TYPE_CHECKING:
    from tailrace.server.arrow import RowBatches

__all__ = ["Rows"]

RANGES_MAX: Final = 10_000
BYTES_DEFAULT: Final = 64 << 20
BYTES_MAX: Final = 1 << 30
SLICE_BYTES: Final = 1 << 20
TURN_S: Final = 0.002
"""So long a turn of the loop may take for ranges of few messages."""

_COLUMNS: Final = (
    "range", "bucket", "stream", "message", "offset", "next_offset", "time", "content_type",
    "value",
)  # fmt: skip
_MORE_COLUMNS: Final = ("size", "producer")
_ALWAYS: Final = ("range", "next_offset", "status", "detail")


class _Range(Named, kw_only=True, rename={"start": "from"}):
    """A range of a stream; from its beginning, up to the tail of now, if it says nothing else."""

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


class Rows:
    """Answers to requests for rows."""

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access
        self._row_batches: type[RowBatches] | None = None

    async def answer(self, request: Request) -> Response:
        """
        The head of the answer, and what makes its body.

        Raises:
            RequestInvalid: The body is not a request for rows.
            ArrowMissing: The server has no pyarrow.
        """
        asked = decode_body(request, _decode)
        if len(asked.ranges) > RANGES_MAX:
            raise RequestInvalid(f"a request may have {RANGES_MAX} ranges at most")
        if not 1 <= asked.bytes_max <= BYTES_MAX:
            raise RequestInvalid(f"bytes_max must be from 1 to {BYTES_MAX}")
        columns = _columns(asked.columns)
        if self._row_batches is None:
            # In a thread: it is a third of a second, once.
            self._row_batches = await asyncio.to_thread(_import_batches)
        batches = self._row_batches(columns)
        body = _Body(self._engine, asked, batches, request.principal, self._access)
        headers = [
            (h.CONTENT_TYPE, b"application/vnd.apache.arrow.stream"),
            h.NO_STORE,
            (b"Vary", b"Accept-Encoding"),
        ]
        coding = negotiate(request.headers.get(b"accept-encoding", b""))
        pieces = body.pieces()
        if coding is not None:
            headers.append((b"Content-Encoding", coding.encode()))
            pieces = packed(pieces, coding)
        return Response(200, headers, live=StreamedBody(pieces, body.release))


def _import_batches() -> "type[RowBatches]":
    """pyarrow and numpy take their time, and not every server has them."""
    try:
        from tailrace.server.arrow import RowBatches
    except ImportError as error:
        raise ArrowMissing(str(error)) from None
    return RowBatches


def _columns(asked: Sequence[str] | None) -> list[str]:
    columns = _COLUMNS if asked is None else asked
    for name in columns:
        if name not in _COLUMNS and name not in _MORE_COLUMNS:
            known = ", ".join((*_COLUMNS, *_MORE_COLUMNS))
            raise RequestInvalid(f"there is no column {name[:64]!r}; columns are {known}")
    # In one order, and each once.
    return [name for name in (*_COLUMNS, *_MORE_COLUMNS, "status", "detail")
            if name in columns or name in _ALWAYS]  # fmt: skip


class _Body:
    """The body of one answer, made range by range."""

    def __init__(
        self,
        engine: Engine,
        asked: _Request,
        batches: "RowBatches",
        principal: Principal | None,
        access: Access | None = None,
    ) -> None:
        self._engine = engine
        self._access = access
        self._principal = principal
        self._ranges = asked.ranges
        self._left = asked.bytes_max
        self._batches = batches
        self._index = 0
        self._reading: _Reading | None = None
        self._let_go: Callable[[], None] | None = None

    def release(self) -> None:
        """Let go of what is being read, if anything is."""
        if self._let_go is not None:
            self._let_go()
            self._let_go = None

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
        """Read on until a batch is full, or others should have their turn; true at the end."""
        until = monotonic() + TURN_S
        while self._left > 0 and self._index < len(self._ranges):
            try:
                self._step()
            except Refusal as refusal:
                self._refuse(refusal)
            if self._batches.full or monotonic() > until:
                self._hold()
                return False
        return True

    def _step(self) -> None:
        """Begin with a range, and read some of it."""
        self._check_principal()
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

    def _check_principal(self) -> None:
        """
        The answer began with good credentials; the peer decides how long it takes.

        Raises:
            CredentialsRefused: They have ended or were taken back meanwhile.
        """
        access, principal = self._access, self._principal
        if access is not None and principal is not None and not access.is_valid(principal):
            raise CredentialsRefused("the credentials of this request are not good any more")

    def _begin(self, asked: _Range) -> "_Reading":
        """
        Find a stream, as a read does.

        Raises:
            Refusal: There is no such range of it.
        """
        stream = self._engine.find(asked.readable_key(self._principal))
        state = stream.durable
        assert state is not None
        self._engine.touch(stream)
        beginning = asked.start == BEGINNING
        where = Where(START if beginning else parse_offset(asked.start), beginning)
        where.check(state)
        assert where.offset is not None
        until = state.tail if asked.until is None else parse_offset(asked.until)
        check_bounds(state, where.offset)
        locate(self._engine.store, state, until)
        if until < where.offset:
            raise QueryInvalid("until", "must not be before from")
        return _Reading(asked.source(self._index, state), state, where.offset, until)

    def _hold(self) -> None:
        """What is being read must still be there in the next turn."""
        if self._reading is not None and self._let_go is None:
            self._let_go = self._engine.pins.hold(self._reading.state)

    def _end(self, status: str, detail: str | None, offset: str | None) -> None:
        self._batches.end(self._index, status, detail, offset)
        self._reading = None
        self._index += 1
        self.release()

    def _refuse(self, refusal: Refusal) -> None:
        """A range that cannot be read, or not to its end, is a row and keeps nobody up."""
        if isinstance(refusal, StorageDamaged):
            log.error("stored data cannot be read: check the disk", detail=refusal.detail)
        earliest = refusal.earliest if isinstance(refusal, OffsetGone) else None
        self._end(refusal.code, problem(refusal).body.decode(), earliest)


class _Reading:
    """How far a range is read."""

    __slots__ = ("at", "source", "state", "until")

    def __init__(self, source: Source, state: StreamState, at: Offset, until: Offset) -> None:
        self.source = source
        self.state = state
        self.at = at
        self.until = until
