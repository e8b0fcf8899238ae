"""
The client: write, read and follow durable streams, on any server of the protocol.

Every operation is a flow (`flow`): a generator that decides what to send, when to retry and where
to resume. It yields effects ("send this request", "wait"), and a driver performs them:

    streams, reading, snapshots             flows of a stream
    buckets, bulk                           flows of a bucket, and of many streams at once
    subscription, subscriptions, worker     flows of subscriptions, and of the loops of workers
    producer_flows, batch_queue             flows of a producer, and the batches it has to deliver
    handle                                  the methods of both clients, made from the flows
    sync, aio                               the blocking and the asynchronous client and driver

`aio` is imported on first use, because importing aiohttp takes a quarter of a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.client import errors, subscription_values, values
from tailrace.client.errors import *  # noqa: F403
from tailrace.client.flow import Retry
from tailrace.client.iteration import AsyncReading, Reading
from tailrace.client.subscription_values import *  # noqa: F403
from tailrace.client.sync.client import Bucket, Client, Stream
from tailrace.client.sync.producer import Producer
from tailrace.client.sync.worker import Subscription, Subscriptions, Wake
from tailrace.client.values import *  # noqa: F403

if TYPE_CHECKING:
    from tailrace.client.aio.client import AsyncBucket, AsyncClient, AsyncStream
    from tailrace.client.aio.producer import AsyncProducer, Delivery
    from tailrace.client.aio.worker import AsyncSubscription, AsyncSubscriptions, AsyncWake

__all__ = [
    "AsyncBucket",
    "AsyncClient",
    "AsyncProducer",
    "AsyncReading",
    "AsyncStream",
    "AsyncSubscription",
    "AsyncSubscriptions",
    "AsyncWake",
    "Bucket",
    "Client",
    "Delivery",
    "Producer",
    "Reading",
    "Retry",
    "Stream",
    "Subscription",
    "Subscriptions",
    "Wake",
]
__all__ += errors.__all__
__all__ += subscription_values.__all__
__all__ += values.__all__

_LAZY = {
    **dict.fromkeys(("AsyncBucket", "AsyncClient", "AsyncStream"), "aio.client"),
    **dict.fromkeys(("AsyncProducer", "Delivery"), "aio.producer"),
    **dict.fromkeys(("AsyncSubscription", "AsyncSubscriptions", "AsyncWake"), "aio.worker"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
