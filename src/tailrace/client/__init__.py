"""
The client: write, read and follow durable streams, on any server of the protocol.

`flow` and what lies beside it decide everything; `sync` and `aio` only perform it.
"""

from tailrace.client.aio import AsyncBucket, AsyncClient, AsyncStream
from tailrace.client.aio_producer import AsyncProducer, Delivery
from tailrace.client.errors import (
    AnswerInvalid,
    Conflict,
    NotFound,
    OffsetGone,
    ProducerFenced,
    ProducerGap,
    ProducerReused,
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
from tailrace.client.sync_producer import Producer
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
    ProducerClaim,
    Snapshot,
    TextChunk,
)

__all__ = [
    "AnswerInvalid",
    "Appended",
    "AsyncBucket",
    "AsyncClient",
    "AsyncProducer",
    "AsyncStream",
    "Bootstrap",
    "Bucket",
    "BucketInfo",
    "Chunk",
    "Client",
    "Conflict",
    "Created",
    "Delivery",
    "Head",
    "Item",
    "Listed",
    "NotFound",
    "OffsetGone",
    "Part",
    "Producer",
    "ProducerClaim",
    "ProducerFenced",
    "ProducerGap",
    "ProducerReused",
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
