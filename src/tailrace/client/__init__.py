"""
The client: write, read and follow durable streams, on any server of the protocol.

Every operation is a flow (`flow`): a generator that decides what to send, when to retry and where
to resume. It yields effects ("send this request", "wait"), and a driver performs them:

    streams, reading, snapshots, recovery   flows of a stream
    buckets, bulk                           flows of a bucket, and of many streams at once
    producer_flows, batch_queue             flows of a producer, and the batches it has to deliver
    handle                                  the methods of both clients, made from the flows
    sync, aio                               the blocking and the asynchronous client and driver

`aio` is imported on first use, because importing aiohttp takes a quarter of a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.client.errors import (
    AnswerInvalid,
    Conflict,
    NotFound,
    OffsetGone,
    PositionGone,
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
from tailrace.client.sync.client import Bucket, Client, Stream
from tailrace.client.sync.producer import Producer
from tailrace.client.values import (
    Appended,
    Bootstrap,
    BucketInfo,
    Chunk,
    Created,
    Found,
    Head,
    Item,
    Listed,
    Part,
    Place,
    ProducerClaim,
    Snapshot,
    StreamName,
    Survey,
    TextChunk,
)

if TYPE_CHECKING:
    from tailrace.client.aio.client import AsyncBucket, AsyncClient, AsyncStream
    from tailrace.client.aio.producer import AsyncProducer, Delivery

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
    "Found",
    "Head",
    "Item",
    "Listed",
    "NotFound",
    "OffsetGone",
    "Part",
    "Place",
    "PositionGone",
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
    "StreamName",
    "Survey",
    "TailraceError",
    "TextChunk",
    "TooLarge",
    "Unauthorized",
    "Unreachable",
]

_LAZY = {
    **dict.fromkeys(("AsyncBucket", "AsyncClient", "AsyncStream"), "aio.client"),
    **dict.fromkeys(("AsyncProducer", "Delivery"), "aio.producer"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
