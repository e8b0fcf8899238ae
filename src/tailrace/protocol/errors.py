"""
Every refusal of the protocol, one class each, under one base.

A refusal changes nothing. Its fields are what the response needs, and its message says what was
wrong and what to do next.
"""

from typing import ClassVar

from tailrace.exceptions import TailraceError

__all__ = [
    "BodyEmpty",
    "BucketExists",
    "BucketInvalid",
    "BucketNotEmpty",
    "BucketNotFound",
    "ContentTypeInvalid",
    "ContentTypeMismatch",
    "ContentTypeMissing",
    "ForkSourceGone",
    "ForkSourceNotFound",
    "ForkSubOffsetBeyond",
    "HeaderInvalid",
    "JsonInvalid",
    "NameInvalid",
    "OffsetBeyondTail",
    "OffsetGone",
    "OffsetInvalid",
    "OffsetMisaligned",
    "PositionGone",
    "ProducerEpochStart",
    "ProducerFenced",
    "ProducerGap",
    "QueryInvalid",
    "Refusal",
    "SeqRegression",
    "SnapshotBeyondTail",
    "SnapshotConflict",
    "SnapshotNeeded",
    "SnapshotNotFound",
    "StreamClosed",
    "StreamExists",
    "StreamHeld",
    "StreamNotFound",
    "StreamSoftDeleted",
]


class Refusal(TailraceError):
    """A request that is not allowed; the stream stays as it was."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "refused"
    title: ClassVar[str] = "Request refused"

    @property
    def detail(self) -> str:
        return str(self) or self.title


class HeaderInvalid(Refusal):
    """The value of a header is malformed."""

    code = "header-invalid"
    title = "Invalid header"
    message = "{header}: {reason}"
    header: str
    reason: str


class QueryInvalid(Refusal):
    """A query parameter is missing, repeated or malformed."""

    code = "query-invalid"
    title = "Invalid query"
    message = "{parameter}: {reason}"
    parameter: str
    reason: str


class NameInvalid(Refusal):
    """A path does not name a stream."""

    code = "path-invalid"
    title = "Invalid stream path"
    message = "{reason}"
    reason: str


class OffsetInvalid(Refusal):
    """The text is not an offset token."""

    code = "offset-invalid"
    title = "Malformed offset"
    message = (
        "{token!r} is not an offset: use a Stream-Next-Offset value as the server returned it, or "
        "-1 for the beginning, or now for the tail"
    )
    token: str


class OffsetMisaligned(OffsetInvalid):
    """A well-formed token that is not a message boundary of this stream."""

    code = "offset-misaligned"
    title = "Offset is not a message boundary"
    message = (
        "{token} is not a message boundary of this stream: offsets are only valid exactly as this "
        "stream returned them"
    )


class OffsetBeyondTail(OffsetInvalid):
    """A well-formed token past the tail. The server may have been restored from a backup."""

    code = "offset-beyond-tail"
    title = "Offset is past the tail"
    message = (
        "{token} is past the tail {tail}: the offset belongs to another stream, or the server's "
        "data is older than what this client has seen"
    )
    tail: str


class OffsetGone(Refusal):
    """The offset is before the earliest retained one (§5.6)."""

    status = 410
    code = "offset-gone"
    title = "Offset is no longer retained"
    message = (
        "{token} is before the earliest retained offset {earliest}: start again from the stream's "
        "/bootstrap"
    )
    token: str
    earliest: str


class PositionGone(Refusal):
    """The server no longer has the changes since a position: a restart, or too many changes."""

    status = 410
    code = "position-gone"
    title = "Position is no longer known"
    message = (
        "the server no longer has the changes since {position}: list the whole bucket, and "
        "continue from the position of that listing"
    )
    position: str


class StreamNotFound(Refusal):
    """The stream was never created, was deleted, or has expired."""

    status = 404
    code = "stream-not-found"
    title = "Stream not found"
    message = "no stream at this URL: create it with PUT (it may have been deleted or have expired)"


class StreamExists(Refusal):
    """PUT on an existing stream of another configuration (§5.1)."""

    status = 409
    code = "stream-exists"
    title = "Stream exists with another configuration"
    message = "the stream exists and differs in {difference}; it was not changed"
    difference: str


class StreamSoftDeleted(Refusal):
    """The stream was deleted, or has expired, and is kept for its forks (forks, today.md)."""

    status = 410
    code = "stream-gone"
    title = "Stream was deleted"
    message = (
        "the stream was deleted or has expired: only its forks still have what they inherited; "
        "the path is free again when they are deleted"
    )


class StreamHeld(Refusal):
    """PUT at the path of a stream that was deleted and is kept for its forks."""

    status = 409
    code = "stream-held"
    title = "Path is still in use by a deleted stream"
    message = (
        "the stream at this path was deleted and is kept for its forks: delete them first, or "
        "choose another path"
    )


class ForkSourceNotFound(Refusal):
    """The source of a fork was never created, was deleted, or has expired."""

    status = 404
    code = "fork-source-not-found"
    title = "Source of the fork not found"
    message = "no stream at the path in Stream-Forked-From: nothing was created"


class ForkSourceGone(Refusal):
    """The source of a fork was deleted and is kept for other forks."""

    status = 409
    code = "fork-source-gone"
    title = "Source of the fork was deleted"
    message = "the stream in Stream-Forked-From was deleted, and cannot be forked any more"


class ForkSubOffsetBeyond(Refusal):
    """The sub-offset counts more than follows the fork offset."""

    code = "fork-sub-offset-beyond"
    title = "Sub-offset is past the next boundary"
    message = (
        "Stream-Fork-Sub-Offset {sub_offset} is past what was appended at {token}, which has "
        "{available} {unit}: use a later Stream-Fork-Offset"
    )
    sub_offset: int
    token: str
    available: int
    unit: str


class StreamClosed(Refusal):
    """The stream is closed and accepts no more appends (§5.2)."""

    status = 409
    code = "stream-closed"
    title = "Stream is closed"
    message = "the stream is closed at {tail}: nothing more can be appended"
    tail: str
    # The stream's state of the requesting producer, so that a retry can see that it was stored.
    epoch: int | None = None
    last_seq: int | None = None


class ContentTypeMissing(Refusal):
    """A body arrived without a Content-Type."""

    code = "content-type-missing"
    title = "Content-Type is missing"
    message = "an append with a body needs the stream's Content-Type"


class ContentTypeInvalid(Refusal):
    """The Content-Type is not a media type."""

    code = "content-type-invalid"
    title = "Content-Type is malformed"
    message = "Content-Type must be type/subtype, in visible ASCII, with optional parameters"


class ContentTypeMismatch(Refusal):
    """The Content-Type of an append differs from the stream's (§5.2, §10.4)."""

    status = 409
    code = "content-type-mismatch"
    title = "Content-Type differs from the stream's"
    message = "the stream is {expected}, the request {received}"
    expected: str
    received: str


class BodyEmpty(Refusal):
    """An append without a body (§5.2)."""

    code = "body-empty"
    title = "Nothing to append"
    message = "an append needs a body; only a request with Stream-Closed: true may be empty"


class JsonInvalid(Refusal):
    """The body of an append in JSON mode is not JSON, or is an empty array (§7.1)."""

    code = "json-invalid"
    title = "Body is not valid JSON"
    message = "{reason}"
    reason: str


class ProducerFenced(Refusal):
    """A newer epoch holds this producer id: stop writing (§5.2.1)."""

    status = 403
    code = "producer-fenced"
    title = "Producer epoch is stale"
    message = (
        "epoch {received_epoch} is fenced by epoch {epoch}: stop, or claim the producer id with a "
        "higher epoch and seq 0"
    )
    epoch: int
    received_epoch: int


class ProducerGap(Refusal):
    """A batch arrived before its predecessor: resend from `expected_seq`."""

    status = 409
    code = "producer-gap"
    title = "Producer sequence gap"
    message = "expected Producer-Seq {expected_seq}, got {received_seq}: resend from there"
    expected_seq: int
    received_seq: int


class ProducerEpochStart(Refusal):
    """A new epoch must start at seq 0 (§5.2.1)."""

    code = "producer-epoch-start"
    title = "A new epoch starts at seq 0"
    message = "epoch {epoch} is new and must start at Producer-Seq 0, not {received_seq}"
    epoch: int
    received_seq: int


class SeqRegression(Refusal):
    """`Stream-Seq` did not increase (§5.2)."""

    status = 409
    code = "seq-regression"
    title = "Stream-Seq did not increase"
    # Published clients look for the words "sequence conflict".
    message = (
        "sequence conflict: Stream-Seq {received!r} is not above the last, {last!r} (compared as "
        "bytes)"
    )
    last: str
    received: str


class BucketInvalid(Refusal):
    """Not a valid bucket id (X§1.1)."""

    code = "bucket-invalid"
    title = "Invalid bucket id"
    message = (
        "{bucket_id!r} cannot be a bucket: an id has 4 to 64 characters out of a-z, 0-9, '_' and "
        "'-' (streams without a bucket are under /v1/stream/)"
    )
    bucket_id: str


class BucketNotFound(Refusal):
    """The bucket does not exist (X§1.3, X§1.6)."""

    status = 404
    code = "bucket-not-found"
    title = "Bucket not found"
    message = (
        "no bucket of this name: create it with PUT /{{bucket_id}} before its streams (streams of "
        "the base protocol are at /v1/stream/{{path}})"
    )


class BucketExists(Refusal):
    """PUT on a bucket that exists (X§1.2)."""

    status = 409
    code = "bucket-exists"
    title = "Bucket exists"
    message = "the bucket exists already; it was not changed"


class BucketNotEmpty(Refusal):
    """DELETE of a bucket that has streams (X§1.5)."""

    status = 409
    code = "bucket-not-empty"
    title = "Bucket is not empty"
    message = (
        "the bucket still has {streams} of its streams: first delete what "
        "GET /{{bucket_id}}/streams lists"
    )
    streams: int


class SnapshotBeyondTail(Refusal):
    """A snapshot of messages that the stream does not have (X§2.2)."""

    status = 409
    code = "snapshot-beyond-tail"
    title = "Snapshot offset is past the tail"
    message = "{token} is past the tail {tail}: a snapshot covers stored messages only"
    token: str
    tail: str


class SnapshotConflict(Refusal):
    """Another snapshot was published at this offset (X§2.2)."""

    status = 409
    code = "snapshot-conflict"
    title = "Another snapshot is published at this offset"
    message = (
        "the snapshot at {token} has other bytes or another Content-Type and is not replaced: "
        "publish at a later offset"
    )
    token: str


class SnapshotNotFound(Refusal):
    """The stream has no visible snapshot, or none at this offset (X§2.3, X§2.5, X§2.6)."""

    status = 404
    code = "snapshot-not-found"
    title = "Snapshot not found"
    message = "no snapshot at this offset; the latest is at {latest}"
    latest: str | None = None

    def __str__(self) -> str:
        if self.latest is None:
            return "the stream has no snapshot: publish one with PUT …/snapshot/{offset}"
        return super().__str__()


class SnapshotNeeded(Refusal):
    """DELETE of the latest snapshot: without it, bootstrap would be incomplete (X§2.6)."""

    status = 409
    code = "snapshot-needed"
    title = "The latest snapshot cannot be deleted"
    message = (
        "messages before this snapshot are no longer retained, so bootstrap needs it: publish "
        "a later one, which replaces it"
    )
