"""
Every way in which the protocol refuses, one class each, under one base.

A refusal changes nothing. It carries the fields that the answer needs, says what was wrong and what
to do next, and pickles (exceptions are rebuilt from `args`, so `__init__` passes its arguments on).
"""

from typing import Any, ClassVar

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
    "StreamNotFound",
]


class Refusal(TailraceError):
    """A request that the protocol does not allow; the stream is as it was."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "refused"
    title: ClassVar[str] = "Request refused"

    def __init__(self, *args: Any) -> None:
        Exception.__init__(self, *args)

    def __init_subclass__(cls, **options: Any) -> None:
        if vars(cls).get("__annotations__") or "message" in vars(cls):
            super().__init_subclass__(**options)

    def __str__(self) -> str:
        return super().__str__() or self.title

    @property
    def detail(self) -> str:
        return str(self)


class HeaderInvalid(Refusal):
    """A header's value is not of its form."""

    code = "header-invalid"
    title = "Invalid header"

    def __init__(self, header: str, reason: str) -> None:
        super().__init__(header, reason)
        self.header = header
        self.reason = reason

    @property
    def detail(self) -> str:
        return f"{self.header}: {self.reason}"


class QueryInvalid(Refusal):
    """A query parameter is missing, repeated or not of its form."""

    code = "query-invalid"
    title = "Invalid query"

    def __init__(self, parameter: str, reason: str) -> None:
        super().__init__(parameter, reason)
        self.parameter = parameter
        self.reason = reason

    @property
    def detail(self) -> str:
        return f"{self.parameter}: {self.reason}"


class NameInvalid(Refusal):
    """A path does not name a stream."""

    code = "path-invalid"
    title = "Invalid stream path"


class OffsetInvalid(Refusal):
    """The text is not an offset token."""

    code = "offset-invalid"
    title = "Malformed offset"

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self.token = token

    @property
    def detail(self) -> str:
        return (
            f"{self.token!r} is not an offset: use a Stream-Next-Offset value as the server "
            "returned it, or -1 for the beginning, or now for the tail"
        )


class OffsetMisaligned(OffsetInvalid):
    """A well-formed token that does not lie between two messages of this stream."""

    code = "offset-misaligned"
    title = "Offset is not a message boundary"

    @property
    def detail(self) -> str:
        return (
            f"{self.token} is not a message boundary of this stream: offsets are only valid "
            "exactly as this stream returned them"
        )


class OffsetBeyondTail(OffsetInvalid):
    """A well-formed token past the tail: perhaps the server was restored from a backup."""

    code = "offset-beyond-tail"
    title = "Offset is past the tail"

    def __init__(self, token: str, tail: str) -> None:
        Refusal.__init__(self, token, tail)
        self.token = token
        self.tail = tail

    @property
    def detail(self) -> str:
        return (
            f"{self.token} is past the tail {self.tail}: the offset belongs to another stream, or "
            "the server's data is older than what this client has seen"
        )


class OffsetGone(Refusal):
    """The offset lies before the earliest retained one (§5.6)."""

    status = 410
    code = "offset-gone"
    title = "Offset is no longer retained"

    def __init__(self, token: str, earliest: str) -> None:
        super().__init__(token, earliest)
        self.token = token
        self.earliest = earliest

    @property
    def detail(self) -> str:
        return (
            f"{self.token} lies before the earliest retained offset {self.earliest}: start again "
            "from the stream's /bootstrap"
        )


class PositionGone(Refusal):
    """What changed since a position is not remembered: the server was restarted, or too much."""

    status = 410
    code = "position-gone"
    title = "Position is no longer known"

    def __init__(self, position: str) -> None:
        super().__init__(position)
        self.position = position

    @property
    def detail(self) -> str:
        return (
            f"the server cannot tell what changed since {self.position}: list the bucket whole, "
            "and go on from the position of that listing"
        )


class StreamNotFound(Refusal):
    """There is no such stream: it was never created, was deleted, or has expired."""

    status = 404
    code = "stream-not-found"
    title = "Stream not found"

    @property
    def detail(self) -> str:
        return (
            "no stream at this URL: create it with PUT (it may have been deleted or have expired)"
        )


class StreamExists(Refusal):
    """PUT on an existing stream of another configuration (§5.1)."""

    status = 409
    code = "stream-exists"
    title = "Stream exists with another configuration"

    def __init__(self, difference: str) -> None:
        super().__init__(difference)
        self.difference = difference

    @property
    def detail(self) -> str:
        return f"the stream exists and differs in {self.difference}; it was not changed"


class StreamClosed(Refusal):
    """The stream is closed and takes no more (§5.2)."""

    status = 409
    code = "stream-closed"
    title = "Stream is closed"

    def __init__(self, tail: str, epoch: int | None = None, last_seq: int | None = None) -> None:
        super().__init__(tail, epoch, last_seq)
        self.tail = tail
        # What the stream holds of the asking producer: a retry can see that it had arrived.
        self.epoch = epoch
        self.last_seq = last_seq

    @property
    def detail(self) -> str:
        return f"the stream is closed at {self.tail}: nothing more can be appended"


class ContentTypeMissing(Refusal):
    """A body arrived without a Content-Type."""

    code = "content-type-missing"
    title = "Content-Type is missing"

    @property
    def detail(self) -> str:
        return "an append with a body needs the stream's Content-Type"


class ContentTypeInvalid(Refusal):
    """The Content-Type is not a media type."""

    code = "content-type-invalid"
    title = "Content-Type is malformed"

    @property
    def detail(self) -> str:
        return "Content-Type must be type/subtype, in visible ASCII, with optional parameters"


class ContentTypeMismatch(Refusal):
    """The append is of another type than the stream (§5.2, §10.4)."""

    status = 409
    code = "content-type-mismatch"
    title = "Content-Type differs from the stream's"

    def __init__(self, expected: str, received: str) -> None:
        super().__init__(expected, received)
        self.expected = expected
        self.received = received

    @property
    def detail(self) -> str:
        return f"the stream is {self.expected}, the request {self.received}"


class BodyEmpty(Refusal):
    """An append of nothing (§5.2)."""

    code = "body-empty"
    title = "Nothing to append"

    @property
    def detail(self) -> str:
        return "an append needs a body; only a request with Stream-Closed: true may be empty"


class JsonInvalid(Refusal):
    """The body of an append in JSON mode is not JSON, or is an empty array (§7.1)."""

    code = "json-invalid"
    title = "Body is not valid JSON"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ProducerFenced(Refusal):
    """A newer epoch holds this producer id (§5.2.1): a zombie, stop writing."""

    status = 403
    code = "producer-fenced"
    title = "Producer epoch is stale"

    def __init__(self, epoch: int, received_epoch: int) -> None:
        super().__init__(epoch, received_epoch)
        self.epoch = epoch
        self.received_epoch = received_epoch

    @property
    def detail(self) -> str:
        return (
            f"epoch {self.received_epoch} is fenced by epoch {self.epoch}: stop, or claim the "
            f"producer id with epoch {self.epoch + 1} and seq 0"
        )


class ProducerGap(Refusal):
    """A batch arrived before its predecessor: resend from `expected_seq`."""

    status = 409
    code = "producer-gap"
    title = "Producer sequence gap"

    def __init__(self, expected_seq: int, received_seq: int) -> None:
        super().__init__(expected_seq, received_seq)
        self.expected_seq = expected_seq
        self.received_seq = received_seq

    @property
    def detail(self) -> str:
        return (
            f"expected Producer-Seq {self.expected_seq}, got {self.received_seq}: resend from there"
        )


class ProducerEpochStart(Refusal):
    """A new epoch must start at seq 0 (§5.2.1)."""

    code = "producer-epoch-start"
    title = "A new epoch starts at seq 0"

    def __init__(self, epoch: int, received_seq: int) -> None:
        super().__init__(epoch, received_seq)
        self.epoch = epoch
        self.received_seq = received_seq

    @property
    def detail(self) -> str:
        return (
            f"epoch {self.epoch} is new and must start at Producer-Seq 0, not {self.received_seq}"
        )


class SeqRegression(Refusal):
    """`Stream-Seq` did not grow (§5.2)."""

    status = 409
    code = "seq-regression"
    title = "Stream-Seq did not increase"

    def __init__(self, last: str, received: str) -> None:
        super().__init__(last, received)
        self.last = last
        self.received = received

    @property
    def detail(self) -> str:
        return (
            f"Stream-Seq {self.received!r} is not above the last, {self.last!r} (compared as bytes)"
        )


class BucketInvalid(Refusal):
    """No bucket can be called this (X§1.1)."""

    code = "bucket-invalid"
    title = "Invalid bucket id"

    def __init__(self, bucket_id: str) -> None:
        super().__init__(bucket_id)
        self.bucket_id = bucket_id

    @property
    def detail(self) -> str:
        return (
            f"{self.bucket_id!r} cannot be a bucket: an id has 4 to 64 characters out of a-z, 0-9, "
            "'_' and '-' (streams without a bucket live under /v1/stream/)"
        )


class BucketNotFound(Refusal):
    """There is no such bucket (X§1.3, X§1.6)."""

    status = 404
    code = "bucket-not-found"
    title = "Bucket not found"

    @property
    def detail(self) -> str:
        return "no bucket of this name: create it with PUT /{bucket_id} before its streams"


class BucketExists(Refusal):
    """PUT on a bucket that exists (X§1.2)."""

    status = 409
    code = "bucket-exists"
    title = "Bucket exists"

    @property
    def detail(self) -> str:
        return "the bucket exists already; it was not changed"


class BucketNotEmpty(Refusal):
    """DELETE of a bucket that has streams (X§1.5)."""

    status = 409
    code = "bucket-not-empty"
    title = "Bucket is not empty"

    def __init__(self, streams: int) -> None:
        super().__init__(streams)
        self.streams = streams

    @property
    def detail(self) -> str:
        return (
            f"the bucket still has {self.streams} of its streams: delete first what "
            "GET /{bucket_id}/streams lists"
        )


class SnapshotBeyondTail(Refusal):
    """A snapshot of messages that the stream does not have (X§2.2)."""

    status = 409
    code = "snapshot-beyond-tail"
    title = "Snapshot offset is past the tail"

    def __init__(self, token: str, tail: str) -> None:
        super().__init__(token, tail)
        self.token = token
        self.tail = tail

    @property
    def detail(self) -> str:
        return f"{self.token} is past the tail {self.tail}: a snapshot covers stored messages only"


class SnapshotConflict(Refusal):
    """Another snapshot was published at this offset (X§2.2)."""

    status = 409
    code = "snapshot-conflict"
    title = "Another snapshot is published at this offset"

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self.token = token

    @property
    def detail(self) -> str:
        return (
            f"the snapshot at {self.token} has other bytes or another Content-Type and stays as it "
            "is: publish at a later offset"
        )


class SnapshotNotFound(Refusal):
    """There is no visible snapshot, or none at this offset (X§2.3, X§2.5, X§2.6)."""

    status = 404
    code = "snapshot-not-found"
    title = "Snapshot not found"

    def __init__(self, latest: str | None = None) -> None:
        super().__init__(latest)
        self.latest = latest

    @property
    def detail(self) -> str:
        if self.latest is None:
            return "the stream has no snapshot: publish one with PUT …/snapshot/{offset}"
        return f"no snapshot at this offset; the latest is at {self.latest}"


class SnapshotNeeded(Refusal):
    """DELETE of the latest snapshot: without it, bootstrap would be incomplete (X§2.6)."""

    status = 409
    code = "snapshot-needed"
    title = "The latest snapshot cannot be deleted"

    @property
    def detail(self) -> str:
        return (
            "messages before this snapshot are no longer retained, so bootstrap needs it: publish "
            "a later one, which replaces it"
        )
