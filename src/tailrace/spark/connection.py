"""Clients for the servers that the options name."""

from typing import Final

from tailrace.client import (
    Client,
    Place,
    RateLimited,
    Retry,
    ServerFailed,
    Stream,
    StreamName,
    TailraceError,
    Unauthorized,
    Unreachable,
)
from tailrace.spark.options import ConnectionOptions

__all__ = ["connect", "is_tailrace_server", "stream_of"]

ATTEMPTS_MAX: Final = 14
"""A failed request ends a query, and a server may take a minute to restart."""


def connect(options: ConnectionOptions) -> Client:
    headers = dict(options.headers)
    if options.token is not None:
        headers["Authorization"] = f"Bearer {options.token}"
    return Client(
        options.url,
        headers=headers,
        timeout_s=options.timeout_s,
        retry=Retry(attempts_max=ATTEMPTS_MAX),
    )


def stream_of(client: Client, bucket: str | None, name: str) -> Stream:
    """A stream by its id in a bucket, or by its path or URL."""
    return client.stream(name) if bucket is None else client.bucket(bucket).stream(name)


def is_tailrace_server(client: Client) -> bool:
    """Whether the server supports a request that only Tailrace has."""
    try:
        # The stream need not exist: only the support of the request counts.
        client.offsets([Place(StreamName(None, "-"), byte=0)])
    except (Unreachable, Unauthorized, RateLimited, ServerFailed):
        raise
    except TailraceError:
        return False
    return True
