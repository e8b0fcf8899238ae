"""`Client`: what a server has, by blocking calls."""

from collections.abc import Mapping
from types import TracebackType

from tailrace.client.buckets import BucketFlows
from tailrace.client.bulk import BulkFlows
from tailrace.client.flow import Retry
from tailrace.client.requests import Options, Text, bucket_url, server_url, stream_url
from tailrace.client.streams import StreamFlows
from tailrace.client.sync.connections import Connections
from tailrace.client.sync.driver import Handle, Shell, iterates, runs
from tailrace.client.sync.producer import produces

__all__ = ["Bucket", "Client", "Stream"]


class Stream(Handle[StreamFlows]):
    """One stream at its URL; made by `Client.stream` or `Bucket.stream`."""

    @property
    def url(self) -> str:
        return self._flows.url

    create = runs(StreamFlows.create)
    append = runs(StreamFlows.append)
    append_json = runs(StreamFlows.append_json)
    producer = produces(StreamFlows.producer)
    close = runs(StreamFlows.close)
    delete = runs(StreamFlows.delete)
    head = runs(StreamFlows.head)
    read = iterates(StreamFlows.read)
    read_all = runs(StreamFlows.read_all)
    read_text = iterates(StreamFlows.read_text)
    tail = iterates(StreamFlows.tail)
    read_json = iterates(StreamFlows.read_json)
    tail_json = iterates(StreamFlows.tail_json)
    tail_text = iterates(StreamFlows.tail_text)
    publish_snapshot = runs(StreamFlows.publish_snapshot)
    snapshot = runs(StreamFlows.snapshot)
    bootstrap = runs(StreamFlows.bootstrap)
    bootstrap_parts = iterates(StreamFlows.bootstrap_parts)
    read_or_bootstrap = iterates(StreamFlows.read_or_bootstrap)
    read_json_or_bootstrap = iterates(StreamFlows.read_json_or_bootstrap)


class Bucket(Handle[BucketFlows]):
    """One bucket at its URL; made by `Client.bucket`."""

    @property
    def url(self) -> str:
        return self._flows.url

    def stream(self, stream_id: str) -> Stream:
        """A stream in this bucket; an id is text and is percent-encoded here."""
        url = self._flows.stream_url(stream_id)
        return Stream(self._shell, StreamFlows(url, self._options), self._options)

    create = runs(BucketFlows.create)
    delete = runs(BucketFlows.delete)
    info = runs(BucketFlows.info)
    streams = iterates(BucketFlows.streams)
    survey = runs(BucketFlows.survey)


class Client(Handle[BulkFlows]):
    """
    A server's streams. Safe to share between threads; `with` closes its connections.

    Args:
        url: Of the server, without a path of its own unless it is mounted below one.
        headers, params: Sent with every request; a value may be something to call for it, before
            each request: a fresh token.
        retry: How often, and how patiently, what failed is tried again.
        timeout_s: How long nothing may come, before a request counts as lost.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, Text] | None = None,
        params: Mapping[str, Text] | None = None,
        retry: Retry | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self.url = server_url(url)
        options = Options(headers or {}, params or {}, retry or Retry())
        self._connections = Connections(timeout_s)
        super().__init__(Shell(self._connections), BulkFlows(self.url, options), options)

    def stream(self, path: str) -> Stream:
        """
        The stream at `/v1/stream/{path}`; a path is text and is percent-encoded here.

        Other servers have their streams elsewhere: a whole `http://` or `https://` URL is taken as
        it is.
        """
        url = stream_url(self.url, path)
        return Stream(self._shell, StreamFlows(url, self._options), self._options)

    def bucket(self, bucket_id: str) -> Bucket:
        """The bucket at `/{bucket_id}`."""
        url = bucket_url(self.url, bucket_id)
        return Bucket(self._shell, BucketFlows(url, self._options), self._options)

    offsets = runs(BulkFlows.offsets)
    find = runs(BulkFlows.find)
    rows = iterates(BulkFlows.rows)

    @property
    def retry(self) -> Retry:
        """How often, and how patiently, what failed is tried again."""
        return self._options.retry

    def close(self) -> None:
        """Close the connections that wait for a next request."""
        self._connections.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
