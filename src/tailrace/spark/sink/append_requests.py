"""
The sink's requests: how each is sent, and what a refusal means.

Rule 1: a stream is created only by request 0 of a batch. Later, a stream that is not there was
deleted with what the batch had stored; running the batch again is right, going on is not.
"""

from dataclasses import dataclass

from tailrace.client import (
    Client,
    Conflict,
    NotFound,
    ProducerClaim,
    ProducerFenced,
    ProducerGap,
    Refused,
    Stream,
    StreamClosed,
    StreamName,
    TooLarge,
    Unauthorized,
)
from tailrace.spark.options import WriteOptions
from tailrace.spark.sink.errors import (
    BucketMissing,
    RequestTooLarge,
    SinkClosed,
    SinkFenced,
    SinkGap,
    SinkRefused,
    SinkUnauthorized,
    StreamMissing,
    StreamVanished,
    TypeConflict,
)

__all__ = ["Append", "Appender", "explain"]


@dataclass(frozen=True)
class Append:
    """A request."""

    name: StreamName
    content_type: str
    claim: ProducerClaim
    body: bytes


class Appender:
    """Sends requests, and creates what is missing, if it may."""

    def __init__(self, client: Client, options: WriteOptions) -> None:
        self._client = client
        self._options = options

    def send(self, append: Append) -> bool:
        """
        Have rows stored; whether they were stored before.

        Raises:
            SinkError: They cannot be.
            Unreachable, ServerFailed: The server does not answer as it should.
        """
        try:
            return self._send(append)
        except Refused as error:
            raise explain(append, error) from error

    def _send(self, append: Append) -> bool:
        stream = self._stream(append.name)
        try:
            return _append(stream, append)
        except NotFound:
            if append.claim.seq:
                raise StreamVanished(str(append.name), append.claim.seq) from None
            if not self._options.create_streams:
                raise StreamMissing(str(append.name)) from None
        self._create(stream, append)
        return _append(stream, append)

    def _create(self, stream: Stream, append: Append) -> None:
        for may_create_bucket in (self._options.create_buckets, False):
            try:
                stream.create(append.content_type, ttl_s=self._options.ttl_s)
            except Conflict:
                # Somebody else made it meanwhile; if it is not what we need, appending will tell.
                return
            except NotFound:
                if append.name.bucket is None:
                    raise
                if not may_create_bucket:
                    raise BucketMissing(append.name.bucket, str(append.name)) from None
                self._create_bucket(append.name.bucket)
            else:
                return

    def _create_bucket(self, bucket: str) -> None:
        try:
            self._client.bucket(bucket).create()
        except Conflict:
            # Another task was faster.
            return

    def _stream(self, name: StreamName) -> Stream:
        if name.bucket is None:
            return self._client.stream(name.stream)
        return self._client.bucket(name.bucket).stream(name.stream)


def _append(stream: Stream, append: Append) -> bool:
    try:
        return stream.append(append.body, append.content_type, claim=append.claim).duplicate
    except StreamClosed as error:
        if not _has(error, append.claim):
            raise
        return True


def _has(error: StreamClosed, claim: ProducerClaim) -> bool:
    """
    Whether a stream that is closed had got a request before.

    §5.2.1: it acknowledges only what closed it, so that a batch whose stream was closed right after
    could never be repeated. Our servers say what they have of a producer.
    """
    epoch, seq = (error.headers.get(name, "") for name in ("producer-epoch", "producer-seq"))
    return epoch == str(claim.epoch) and seq.isdecimal() and int(seq) >= claim.seq


def explain(append: Append, error: Refused) -> Exception:
    """What a refusal means for a sink."""
    name, claim = str(append.name), append.claim
    whose = name, claim.producer_id, claim.epoch
    match error:
        case ProducerFenced():
            return SinkFenced(*whose, error.epoch)
        case ProducerGap():
            return SinkGap(*whose, claim.seq)
        case StreamClosed():
            return SinkClosed(name, error.next_offset)
        case Conflict(code="content-type-mismatch"):
            return TypeConflict(name, append.content_type, error.detail)
        case NotFound():
            return StreamMissing(name)
        case TooLarge():
            return RequestTooLarge(name, len(append.body), error.detail)
        case Unauthorized():
            return SinkUnauthorized(name, error.status, error.detail)
        case Refused(code="producer-epoch-start"):
            return SinkGap(*whose, claim.seq)
    if error.status >= 500 or error.status == 429:
        # It passes: the task is tried again.
        return error
    return SinkRefused(name, error.status, error.detail)
