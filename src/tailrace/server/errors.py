"""Refusals of the server itself, before a request reaches the protocol."""

from tailrace.protocol.errors import Refusal

__all__ = [
    "ArrowMissing", "BackupFailed", "BackupRunning", "BackupUnsupported", "BodyIncomplete",
    "BodyTooLarge", "ConditionFailed", "ConditionUnsupported", "ContentCodingRefused",
    "HeadersTooLarge", "Internal", "MalformedRequest", "MethodNotAllowed",
    "NotReady", "RequestInvalid", "RequestTimeout",
    "RouteNotFound", "SnapshotNotStored", "SnapshotTooLarge", "TooManyConnections",
    "TransferCodingUnknown", "UpgradeRefused", "UriTooLong",
]  # fmt: skip


class RouteNotFound(Refusal):
    """No route matches the path."""

    status = 404
    code = "route-not-found"
    title = "No such path"
    message = (
        "no route matches this path: streams are at /v1/stream/{{path}} and "
        "/{{bucket_id}}/{{stream_id}}"
    )


class MethodNotAllowed(Refusal):
    """The route exists and does not support this method."""

    status = 405
    code = "method-not-allowed"
    title = "Method not allowed"
    message = "{method:.32} is not allowed here; allowed: {allowed}{advice}"
    method: str
    allowed: str
    advice: str = ""


class BodyTooLarge(Refusal):
    """The body is larger than `--body-bytes-max`."""

    status = 413
    code = "body-too-large"
    title = "Body too large"
    message = (
        "a request body may have at most {bytes_max} bytes (--body-bytes-max): "
        "split it into several appends"
    )
    bytes_max: int


class BodyIncomplete(Refusal):
    """The body is not what its headers announce: a part was lost before it reached the server."""

    code = "body-incomplete"
    title = "Incomplete body"
    message = "the body {reason}, and nothing was stored: send the request again{advice}"
    reason: str
    advice: str


class SnapshotTooLarge(Refusal):
    """The snapshot is larger than `--snapshot-bytes-max` (X§2.2)."""

    status = 413
    code = "snapshot-too-large"
    title = "Snapshot too large"
    message = "a snapshot may have at most {bytes_max} bytes (--snapshot-bytes-max)"
    bytes_max: int


class SnapshotNotStored(Refusal):
    """Writing the snapshot to disk failed; the previous snapshot stays visible."""

    status = 503
    code = "snapshot-not-stored"
    title = "Snapshot could not be stored"
    message = (
        "the server's disk failed while the snapshot was written, and nothing was changed: retry, "
        "and if it fails again, see the server's log"
    )


class UriTooLong(Refusal):
    """The request target is longer than the server reads."""

    status = 414
    code = "uri-too-long"
    title = "URI too long"
    message = "a request target may have at most {bytes_max} bytes"
    bytes_max: int


class HeadersTooLarge(Refusal):
    """The request has more headers, or larger ones, than the server reads."""

    status = 431
    code = "headers-too-large"
    title = "Headers too large"
    message = "a request may have at most {count_max} headers, with {bytes_max} bytes in total"
    bytes_max: int
    count_max: int


class MalformedRequest(Refusal):
    """The bytes are not an HTTP/1.1 request."""

    code = "request-malformed"
    title = "Malformed request"
    message = "{reason}"
    reason: str


class RequestInvalid(Refusal):
    """The body of a request for offsets or rows is invalid."""

    code = "request-invalid"
    title = "Invalid request body"
    message = "{reason}"
    reason: str


class ArrowMissing(Refusal):
    """The response must be Arrow, and pyarrow is not installed on the server."""

    status = 501
    code = "arrow-missing"
    title = "Arrow is not installed"
    message = (
        "the server cannot encode Arrow ({reason}): install it with pip install 'tailrace[arrow]' "
        "and restart the server"
    )
    reason: str


class UpgradeRefused(Refusal):
    """The method is CONNECT; the server does not tunnel."""

    status = 501
    code = "upgrade-refused"
    title = "Upgrade is not supported"
    message = "this server is not a proxy: send plain HTTP/1.1 requests"


class TransferCodingUnknown(Refusal):
    """The transfer coding is not chunked."""

    status = 501
    code = "transfer-coding-unknown"
    title = "Transfer coding is not supported"
    message = "the only supported Transfer-Encoding is chunked"


class ContentCodingRefused(Refusal):
    """The body is compressed. It would be stored without its coding, which readers need."""

    status = 415
    code = "content-coding-refused"
    title = "Content-Encoding is not supported"
    message = (
        "send the body without Content-Encoding; responses are compressed if the client accepts it"
    )


class ConditionFailed(Refusal):
    """`If-None-Match: *`: what should be created exists."""

    status = 412
    code = "condition-failed"
    title = "Condition failed"
    message = "it exists, and If-None-Match: * allows only to create it; nothing was changed"


class ConditionUnsupported(Refusal):
    """The condition of a write cannot be evaluated."""

    status = 501
    code = "condition-unsupported"
    title = "Condition is not supported"
    message = (
        "{header} on {method} is not supported with this value, and nothing was changed: PUT of a "
        "stream, a bucket or a subscription takes If-None-Match: *, POST and DELETE take "
        "If-Match: *; to order appends, use Stream-Seq or a producer"
    )
    header: str
    method: str


class RequestTimeout(Refusal):
    """The request did not arrive in time."""

    status = 408
    code = "request-timeout"
    title = "Request timed out"
    message = "the request did not arrive in time; nothing was appended"


class TooManyConnections(Refusal):
    """The server has `--connections-max` connections."""

    status = 503
    code = "too-many-connections"
    title = "Too many connections"
    message = "the server has reached its maximum of connections (--connections-max): retry later"


class NotReady(Refusal):
    """The server is starting or stopping, or its storage failed."""

    status = 503
    code = "not-ready"
    title = "Not ready"
    message = "{reason}"
    reason: str


class Internal(Refusal):
    """An unexpected failure of the server; the traceback is in its log."""

    status = 500
    code = "internal"
    title = "Internal error"
    message = "the server failed to handle this request: see its log"


class BackupUnsupported(Refusal):
    """The engine keeps streams in memory only."""

    status = 501
    code = "backup-unsupported"
    title = "No backups of this engine"
    message = "--engine memory stores nothing on disk: serve with --engine rocksdb"


class BackupRunning(Refusal):
    """Another backup is in progress."""

    status = 409
    code = "backup-running"
    title = "A backup is in progress"
    message = "this server is sending a backup to another client: retry when it has finished"


class BackupFailed(Refusal):
    """Making the backup's copy failed; the stored data is unchanged."""

    status = 503
    code = "backup-failed"
    title = "Backup could not be taken"
    message = "the server's disk failed while the backup was made: see the server's log"
