"""
Sends the sink's requests, and interprets refusals.

Rule 1: a stream is created only by request 0 of a batch. If it is missing later, it was deleted
together with the earlier requests of the batch, so the batch must be run again.
"""

from contextlib import suppress
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
from tailrace.spark.connection import stream_of
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

__all__ = ["AppendRequest", "Appender", "sink_error"]


@dataclass(frozen=True)
class AppendRequest:
    """A request with some rows of one stream."""

    name: StreamName
    content_type: str
    claim: ProducerClaim
    body: bytes


@dataclass(frozen=True)
class Appender:
    """Sends requests, and creates missing streams and buckets if the options allow it."""

    _client: Client
    _options: WriteOptions

    def send(self, request: AppendRequest) -> bool:
        """
        Store rows; returns whether an earlier attempt had stored them.

        Raises:
            SinkError: The request is refused.
            Unreachable, ServerFailed: The server does not respond, or fails.
        """
        try:
            return self._send(request)
        except Refused as error:
            raise sink_error(request, error) from error

    def _send(self, request: AppendRequest) -> bool:
        stream = stream_of(self._client, request.name.bucket, request.name.stream)
        try:
            return _append(stream, request)
        except NotFound:
            if request.claim.seq:
                raise StreamVanished(str(request.name), request.claim.seq) from None
            if not self._options.create_streams:
                raise StreamMissing(str(request.name)) from None
        self._create(stream, request)
        return _append(stream, request)

    def _create(self, stream: Stream, request: AppendRequest) -> None:
        for may_create_bucket in (self._options.create_buckets, False):
            try:
                stream.create(request.content_type, ttl_s=self._options.ttl_s)
            except Conflict:
                # It was created meanwhile. If its type differs, the append fails.
                return
            except NotFound:
                if request.name.bucket is None:
                    raise
                if not may_create_bucket:
                    raise BucketMissing(request.name.bucket, str(request.name)) from None
                # Another task may have created it meanwhile.
                with suppress(Conflict):
                    self._client.bucket(request.name.bucket).create()
            else:
                return


def _append(stream: Stream, request: AppendRequest) -> bool:
    try:
        return stream.append(request.body, request.content_type, claim=request.claim).duplicate
    except StreamClosed as error:
        if not _is_stored(error, request.claim):
            raise
        return True


def _is_stored(error: StreamClosed, claim: ProducerClaim) -> bool:
    """
    Whether a closed stream already has a request.

    §5.2.1: a closed stream acknowledges only the request that closed it, so a batch whose stream
    was closed later could never be repeated. Tailrace servers return the last claim they stored.
    """
    epoch, seq = (error.headers.get(name, "") for name in ("producer-epoch", "producer-seq"))
    return epoch == str(claim.epoch) and seq.isdecimal() and int(seq) >= claim.seq


def sink_error(request: AppendRequest, error: Refused) -> Exception:
    """The error of the sink for a refusal."""
    name, claim = str(request.name), request.claim
    detail = error.detail or "no reason given"
    whose = name, claim.producer_id, claim.epoch
    match error:
        case ProducerFenced():
            return SinkFenced(*whose, error.epoch)
        case ProducerGap():
            return SinkGap(*whose, claim.seq)
        case StreamClosed():
            return SinkClosed(name, error.next_offset)
        case Conflict(code="content-type-mismatch"):
            return TypeConflict(name, request.content_type, detail)
        case NotFound():
            return StreamMissing(name)
        case TooLarge():
            return RequestTooLarge(name, len(request.body), detail)
        case Unauthorized():
            return SinkUnauthorized(name, error.status, detail)
        case Refused(code="producer-epoch-start"):
            return SinkGap(*whose, claim.seq)
    if error.status >= 500 or error.status == 429:
        # Temporary: Spark retries the task.
        return error
    return SinkRefused(name, error.status, detail)
