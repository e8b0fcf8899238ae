"""`Client`: the streams of a server, by blocking calls."""

from typing import Any

from tailrace.client.batch_queue import ProducerOptions
from tailrace.client.handle import BaseBucket, BaseClient, BaseStream, constructs
from tailrace.client.sync.driver import Driver
from tailrace.client.sync.producer import Producer

__all__ = ["Bucket", "Client", "Stream"]


class Stream(BaseStream[Driver], driver=Driver):
    """One stream at its URL; made by `Client.stream` or `Bucket.stream`."""

    producer = constructs(ProducerOptions, Producer)


class Bucket(BaseBucket[Driver, Stream], driver=Driver):
    """One bucket at its URL; made by `Client.bucket`."""

    _stream_type = Stream


class Client(BaseClient[Driver, Stream, Bucket], driver=Driver):
    """
    The streams of a server. Safe to share between threads; `with` closes its connections.

    Args:
        url: The URL of the server, with a path only if the server is mounted below one.
        headers, params: Sent with every request; a value may be a callable, which is called before
            each request, for example for a fresh token.
        retry: How often a failed request is retried, and after which pauses.
        timeout_s: The longest time without data before a request counts as lost.
    """

    _driver_type = Driver
    _stream_type = Stream
    _bucket_type = Bucket

    def close(self) -> None:
        """Close the idle connections."""
        self._driver.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()
