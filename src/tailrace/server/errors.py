"""What a request can be refused for before the protocol looks at it."""

from tailrace.protocol.errors import Refusal

__all__ = [
    "ArrowMissing",
    "BackupFailed",
    "BackupRunning",
    "BackupUnsupported",
    "BodyTooLarge",
    "ContentCodingRefused",
    "HeadersTooLarge",
    "Internal",
    "MalformedRequest",
    "MethodNotAllowed",
    "NotReady",
    "RequestInvalid",
    "RequestTimeout",
    "RouteNotFound",
    "SnapshotNotStored",
    "SnapshotTooLarge",
    "TooManyConnections",
    "TransferCodingUnknown",
    "UpgradeRefused",
    "UriTooLong",
]


class RouteNotFound(Refusal):
    """The path is none of the server's."""

    status = 404
    code = "route-not-found"
    title = "No such path"

    @property
    def detail(self) -> str:
        return (
            "nothing is served at this path: streams live under /v1/stream/{path} and "
            "/{bucket_id}/{stream_id}"
        )


class MethodNotAllowed(Refusal):
    """The path exists and does not know this method."""

    status = 405
    code = "method-not-allowed"
    title = "Method not allowed"

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(method, allowed)
        self.method = method
        self.allowed = allowed

    @property
    def detail(self) -> str:
        return f"{self.method[:32]} is not allowed here; allowed: {self.allowed}"


class BodyTooLarge(Refusal):
    """The body is over `--body-bytes-max`."""

    status = 413
    code = "body-too-large"
    title = "Body too large"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.bytes_max = bytes_max

    @property
    def detail(self) -> str:
        return (
            f"a request body may have {self.bytes_max} bytes at most (--body-bytes-max); "
            "send it in several appends"
        )


class SnapshotTooLarge(Refusal):
    """The snapshot is over `--snapshot-bytes-max` (X§2.2)."""

    status = 413
    code = "snapshot-too-large"
    title = "Snapshot too large"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.bytes_max = bytes_max

    @property
    def detail(self) -> str:
        return f"a snapshot may have {self.bytes_max} bytes at most (--snapshot-bytes-max)"


class SnapshotNotStored(Refusal):
    """The disk refused the bytes of a snapshot; the one before it stays visible."""

    status = 503
    code = "snapshot-not-stored"
    title = "Snapshot could not be stored"

    @property
    def detail(self) -> str:
        return (
            "the server's disk failed while the snapshot was written; nothing was changed: retry, "
            "and look at the server's log if it happens again"
        )


class UriTooLong(Refusal):
    """The request target is longer than the server reads."""

    status = 414
    code = "uri-too-long"
    title = "URI too long"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.bytes_max = bytes_max

    @property
    def detail(self) -> str:
        return f"a request target may have {self.bytes_max} bytes at most"


class HeadersTooLarge(Refusal):
    """The request's headers are more than the server reads."""

    status = 431
    code = "headers-too-large"
    title = "Headers too large"

    def __init__(self, bytes_max: int, count_max: int) -> None:
        super().__init__(bytes_max, count_max)
        self.bytes_max = bytes_max
        self.count_max = count_max

    @property
    def detail(self) -> str:
        return f"a request may have {self.count_max} headers of {self.bytes_max} bytes in all"


class MalformedRequest(Refusal):
    """The bytes are not an HTTP/1.1 request."""

    code = "request-malformed"
    title = "Malformed request"


class RequestInvalid(Refusal):
    """The body of a request for offsets or rows is not of its form."""

    code = "request-invalid"
    title = "Invalid request body"


class ArrowMissing(Refusal):
    """Rows are answered as Arrow, and this server cannot make it."""

    status = 501
    code = "arrow-missing"
    title = "Arrow is not installed"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def detail(self) -> str:
        return (
            f"the server lacks what makes Arrow ({self.reason}): install it with "
            "pip install 'tailrace[arrow]' and restart the server"
        )


class UpgradeRefused(Refusal):
    """CONNECT: a tunnel, which this is not."""

    status = 501
    code = "upgrade-refused"
    title = "Upgrade is not supported"

    @property
    def detail(self) -> str:
        return "this server is no proxy: send plain HTTP/1.1 requests"


class TransferCodingUnknown(Refusal):
    """A transfer coding other than chunked."""

    status = 501
    code = "transfer-coding-unknown"
    title = "Transfer coding is not supported"

    @property
    def detail(self) -> str:
        return "Transfer-Encoding may be chunked and nothing else"


class ContentCodingRefused(Refusal):
    """A compressed body: it would be stored as it is, and nobody could tell later."""

    status = 415
    code = "content-coding-refused"
    title = "Content-Encoding is not supported"

    @property
    def detail(self) -> str:
        return "send the body without Content-Encoding; answers are compressed where asked for"


class RequestTimeout(Refusal):
    """The request did not arrive in time."""

    status = 408
    code = "request-timeout"
    title = "Request timed out"

    @property
    def detail(self) -> str:
        return "the request did not arrive in time; nothing was appended"


class TooManyConnections(Refusal):
    """More connections than `--connections-max`."""

    status = 503
    code = "too-many-connections"
    title = "Too many connections"

    @property
    def detail(self) -> str:
        return "the server has as many connections as it takes (--connections-max): retry later"


class NotReady(Refusal):
    """The server is starting, stopping, or its storage failed."""

    status = 503
    code = "not-ready"
    title = "Not ready"


class Internal(Refusal):
    """A fault of the server's; its log has more."""

    status = 500
    code = "internal"
    title = "Internal error"

    @property
    def detail(self) -> str:
        return "the server failed to handle this request; its log says more"


class BackupUnsupported(Refusal):
    """A backup of streams that are in memory alone."""

    status = 501
    code = "backup-unsupported"
    title = "No backups of this engine"

    @property
    def detail(self) -> str:
        return "the streams of --engine memory are in no file: serve with --engine rocksdb"


class BackupRunning(Refusal):
    """A second backup while one is being sent."""

    status = 409
    code = "backup-running"
    title = "A backup is under way"

    @property
    def detail(self) -> str:
        return "this server sends a backup to somebody else: retry when that is done"


class BackupFailed(Refusal):
    """The disk refused to make a copy; what is stored is as it was."""

    status = 503
    code = "backup-failed"
    title = "Backup could not be taken"

    @property
    def detail(self) -> str:
        return "the server's disk failed while the copy was made: its log says more"
