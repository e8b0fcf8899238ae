"""
The client: write, read and follow durable streams, on any server of the protocol.

`flow` and what lies beside it decide everything; `sync` and `aio` only perform it.
"""

from tailrace.client.aio import AsyncClient, AsyncStream
from tailrace.client.errors import (
    AnswerInvalid,
    Conflict,
    NotFound,
    OffsetGone,
    ProducerFenced,
    ProducerGap,
    RateLimited,
    Refused,
    ServerFailed,
    StreamClosed,
    TailraceError,
    TooLarge,
    Unauthorized,
    Unreachable,
)
from tailrace.client.flow import Retry
from tailrace.client.sync import Client, Stream
from tailrace.client.values import Appended, Chunk, Created, Head

__all__ = [
    "AnswerInvalid",
    "Appended",
    "AsyncClient",
    "AsyncStream",
    "Chunk",
    "Client",
    "Conflict",
    "Created",
    "Head",
    "NotFound",
    "OffsetGone",
    "ProducerFenced",
    "ProducerGap",
    "RateLimited",
    "Refused",
    "Retry",
    "ServerFailed",
    "Stream",
    "StreamClosed",
    "TailraceError",
    "TooLarge",
    "Unauthorized",
    "Unreachable",
]
