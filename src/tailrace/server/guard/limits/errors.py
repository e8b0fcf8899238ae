"""Refusals of rate limits and quotas (§10.5)."""

from tailrace.protocol.errors import Refusal

__all__ = [
    "AppendRateExceeded", "BucketBytesExceeded", "BucketRateExceeded", "BucketStreamsExceeded",
    "ClientWaitersExceeded", "RateLimited", "RequestRateExceeded", "TooManyWaiters",
]  # fmt: skip


class RateLimited(Refusal):
    """A client or a bucket exceeds a rate of the limits file; `Retry-After` says when to retry."""

    status = 429
    retry_after_s: int


class RequestRateExceeded(RateLimited):
    """The client sent more requests than its `requests_per_s`."""

    code = "request-rate-exceeded"
    title = "Too many requests"
    message = (
        "this client exceeds its request rate: retry after {retry_after_s} s, put more messages "
        "into one append, or follow streams with live=sse instead of polling"
    )


class AppendRateExceeded(RateLimited):
    """The client appended more bytes than its `append_bytes_per_s`."""

    code = "append-rate-exceeded"
    title = "Too many bytes appended"
    message = (
        "this client exceeds its append rate: nothing was appended, retry after {retry_after_s} s"
    )


class ClientWaitersExceeded(RateLimited):
    """The client has as many waiting readers as its `waiters_max`."""

    code = "client-waiters-exceeded"
    title = "Too many waiting readers of this client"
    message = (
        "this client has reached its maximum of concurrent long-poll and SSE readers: end one, or "
        "read without live"
    )


class BucketRateExceeded(RateLimited):
    """The bucket received more messages than its `messages_per_s`."""

    code = "bucket-rate-exceeded"
    title = "Too many messages in this bucket"
    message = (
        "this bucket exceeds its message rate: nothing was appended, retry after {retry_after_s} s"
    )


class BucketBytesExceeded(Refusal):
    """The bucket would hold more than its `bytes_max`."""

    status = 507
    code = "bucket-bytes-exceeded"
    title = "Bucket is full"
    message = (
        "this bucket may hold {bytes_max} bytes and holds {size}: publish snapshots, delete "
        "streams, or have its quota raised"
    )
    size: int
    bytes_max: int


class BucketStreamsExceeded(Refusal):
    """The bucket has as many streams as its `streams_max`."""

    status = 507
    code = "bucket-streams-exceeded"
    title = "Bucket has too many streams"
    message = (
        "this bucket has its maximum of {streams_max} streams: delete some, or have its quota "
        "raised"
    )
    streams_max: int


class TooManyWaiters(Refusal):
    """The server has `--waiters-max` waiting readers, or the client has its fair share of them."""

    status = 503
    code = "too-many-waiters"
    title = "Too many waiting readers"
    message = (
        "the server has reached its maximum of long-poll and SSE readers (--waiters-max), or this "
        "client its share of them: retry later, or read without live"
    )
