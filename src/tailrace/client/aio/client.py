"""`AsyncClient`: the streams of a server, for asyncio."""

from typing import Any

from tailrace.client.aio.driver import AsyncDriver
from tailrace.client.aio.producer import AsyncProducer
from tailrace.client.batch_queue import ProducerOptions
from tailrace.client.handle import BaseBucket, BaseClient, BaseStream, constructs

__all__ = ["AsyncBucket", "AsyncClient", "AsyncStream"]


class AsyncStream(BaseStream[AsyncDriver], driver=AsyncDriver):
    """One stream at its URL; made by `AsyncClient.stream` or `AsyncBucket.stream`."""

    producer = constructs(ProducerOptions, AsyncProducer)


class AsyncBucket(BaseBucket[AsyncDriver, AsyncStream], driver=AsyncDriver):
    """One bucket at its URL; made by `AsyncClient.bucket`."""

    _stream_type = AsyncStream


class AsyncClient(BaseClient[AsyncDriver, AsyncStream, AsyncBucket], driver=AsyncDriver):
    """
    The streams of a server, for one event loop; `async with` closes its connections.

    The arguments are those of `Client`.
    """

    _driver_type = AsyncDriver
    _stream_type = AsyncStream
    _bucket_type = AsyncBucket

    async def close(self) -> None:
        """Close all connections."""
        await self._driver.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.close()
