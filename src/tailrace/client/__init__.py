"""
The client: write, read and follow durable streams, on any server of the protocol.

`flow` and what lies beside it decide everything; `sync` and `aio` only perform it.
"""

from tailrace.client.aio import AsyncBucket, AsyncClient, AsyncStream
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
from tailrace.client.sync import Bucket, Client, Stream
from tailrace.client.values import (
    Appended,
    Bootstrap,
    BucketInfo,
    Chunk,
    Created,
    Head,
    Item,
    Listed,
    Part,
    Snapshot,
    TextChunk,
)

__all__ = [
    "AnswerInvalid",
    "Appended",
    "AsyncBucket",
    "AsyncClient",
    "AsyncStream",
    "Bootstrap",
    "Bucket",
    "BucketInfo",
    "Chunk",
    "Client",
    "Conflict",
    "Created",
    "Head",
    "Item",
    "Listed",
    "NotFound",
    "OffsetGone",
    "Part",
    "ProducerFenced",
    "ProducerGap",
    "RateLimited",
    "Refused",
    "Retry",
    "ServerFailed",
    "Snapshot",
    "Stream",
    "StreamClosed",
    "TailraceError",
    "TextChunk",
    "TooLarge",
    "Unauthorized",
    "Unreachable",
]
