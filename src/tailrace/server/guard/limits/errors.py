"""What a request can be refused for because there is too much of it (§10.5)."""

from tailrace.protocol.errors import Refusal

__all__ = [
    "AppendRateExceeded",
    "BucketBytesExceeded",
    "BucketRateExceeded",
    "BucketStreamsExceeded",
    "ClientWaitersExceeded",
    "RateLimited",
    "RequestRateExceeded",
    "TooManyWaiters",
]


class RateLimited(Exception):
    """A client, or a bucket, is over a limit of the limits file (§10.5); it passes with time."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s


class RequestRateExceeded(RateLimited, Refusal):
    """More requests than `requests_per_s` of this client."""

    status = 429
    code = "request-rate-exceeded"
    title = "Too many requests"

    @property
    def detail(self) -> str:
        return (
            f"this client sends more requests than it may: retry after {self.retry_after_s} s, and "
            "put more messages into one append, or follow with live=sse instead of asking often"
        )


class AppendRateExceeded(RateLimited, Refusal):
    """More appended bytes than `append_bytes_per_s` of this client."""

    status = 429
    code = "append-rate-exceeded"
    title = "Too many bytes appended"

    @property
    def detail(self) -> str:
        return (
            f"this client appends more bytes than it may: nothing was appended, retry after "
            f"{self.retry_after_s} s"
        )


class ClientWaitersExceeded(RateLimited, Refusal):
    """More waiting readers than `waiters_max` of this client."""

    status = 429
    code = "client-waiters-exceeded"
    title = "Too many waiting readers of this client"

    @property
    def detail(self) -> str:
        return (
            "this client has as many long-poll and SSE readers as it may have at once: end one, "
            "or read without live"
        )


class BucketRateExceeded(RateLimited, Refusal):
    """More messages than `messages_per_s` of this bucket."""

    status = 429
    code = "bucket-rate-exceeded"
    title = "Too many messages in this bucket"

    @property
    def detail(self) -> str:
        return (
            f"this bucket takes no more messages just now: nothing was appended, retry after "
            f"{self.retry_after_s} s"
        )


class BucketBytesExceeded(Refusal):
    """The bucket would hold more than its `bytes_max`."""

    status = 507
    code = "bucket-bytes-exceeded"
    title = "Bucket is full"

    def __init__(self, size: int, bytes_max: int) -> None:
        super().__init__(size, bytes_max)
        self.size = size
        self.bytes_max = bytes_max

    @property
    def detail(self) -> str:
        return (
            f"this bucket may hold {self.bytes_max} bytes and has {self.size}: publish snapshots, "
            "delete streams, or have its quota raised"
        )


class BucketStreamsExceeded(Refusal):
    """The bucket has as many streams as its `streams_max`."""

    status = 507
    code = "bucket-streams-exceeded"
    title = "Bucket has too many streams"

    def __init__(self, streams_max: int) -> None:
        super().__init__(streams_max)
        self.streams_max = streams_max

    @property
    def detail(self) -> str:
        return (
            f"this bucket may have {self.streams_max} streams and has them: delete some, or have "
            "its quota raised"
        )


class TooManyWaiters(Refusal):
    """More waiting readers than `--waiters-max`, or than a client's fair share of them."""

    status = 503
    code = "too-many-waiters"
    title = "Too many waiting readers"

    @property
    def detail(self) -> str:
        return (
            "the server has as many long-poll and SSE readers as it takes (--waiters-max), or this "
            "client more than its share of them: retry later, or read without live"
        )
