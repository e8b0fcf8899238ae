"""
The classes of both clients, from one definition.

A handle is an object on a server: its flows, and the driver that runs them. `ResultMethod` and
`IteratorMethod` make a method of a flow. On a handle with the blocking driver it returns a result
or an iterator; with the asynchronous driver, a coroutine or an asynchronous iterator.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

from tailrace.client.buckets import BucketFlows
from tailrace.client.bulk import BulkFlows
from tailrace.client.flow import Flow, Items, Retry
from tailrace.client.iteration import AsyncReading, Reading
from tailrace.client.producer_flows import ProducerFlows
from tailrace.client.requests import (
    Options,
    Resource,
    Text,
    bucket_url,
    server_url,
    stream_url,
)
from tailrace.client.streams import StreamFlows
from tailrace.client.subscription import SubscriptionFlows
from tailrace.client.subscriptions import SubscriptionsFlows

if TYPE_CHECKING:
    from tailrace.client.aio.driver import AsyncDriver
    from tailrace.client.sync.driver import Driver

__all__ = [
    "BaseBucket",
    "BaseClient",
    "BaseHandle",
    "BaseProducer",
    "BaseStream",
    "BaseSubscription",
    "BaseSubscriptions",
    "IteratorMethod",
    "ResultMethod",
    "constructs",
]

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
D = TypeVar("D")
F_co = TypeVar("F_co", bound=Resource, covariant=True)
P_co = TypeVar("P_co", bound=ProducerFlows, covariant=True)
S = TypeVar("S", bound="BaseHandle[Any, Any]")
B = TypeVar("B", bound="BaseHandle[Any, Any]")


_SELF: Final = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)


class ResultMethod(Generic[F_co, P, T]):
    """A method that runs a flow to its result."""

    def __init__(self, flow: Callable[Concatenate[F_co, P], Flow[T]]) -> None:
        self.flow = flow

    if TYPE_CHECKING:

        @overload
        def __get__(self, handle: "BaseHandle[Driver, F_co]", owner: Any) -> Callable[P, T]: ...
        @overload
        def __get__(
            self, handle: "BaseHandle[AsyncDriver, F_co]", owner: Any
        ) -> Callable[P, Coroutine[Any, Any, T]]: ...
        def __get__(self, handle: Any, owner: Any) -> Any: ...


class IteratorMethod(Generic[F_co, P, T]):
    """A method that iterates over the items of a flow."""

    def __init__(self, flow: Callable[Concatenate[F_co, P], Items[T]]) -> None:
        self.flow = flow

    if TYPE_CHECKING:

        @overload
        def __get__(
            self, handle: "BaseHandle[Driver, F_co]", owner: Any
        ) -> Callable[P, Reading[T]]: ...
        @overload
        def __get__(
            self, handle: "BaseHandle[AsyncDriver, F_co]", owner: Any
        ) -> Callable[P, AsyncReading[T]]: ...
        def __get__(self, handle: Any, owner: Any) -> Any: ...


class BaseHandle(Generic[D, F_co]):
    """An object on a server: its flows, and the driver that runs them."""

    def __init_subclass__(cls, driver: Any = None) -> None:
        """With a driver, `ResultMethod` and `IteratorMethod` become functions of this class."""
        super().__init_subclass__()
        for name in dir(cls) if driver is not None else ():
            found = inspect.getattr_static(cls, name)
            if isinstance(found, ResultMethod):
                setattr(cls, name, _runs(found.flow, inspect.iscoroutinefunction(driver.run)))
            elif isinstance(found, IteratorMethod):
                setattr(cls, name, _iterates(found.flow))

    def __init__(self, driver: D, flows: F_co) -> None:
        self._driver = driver
        self._flows = flows

    @property
    def url(self) -> str:
        return self._flows.url


def _runs(flow: Callable[..., Flow[Any]], is_async: bool) -> Callable[..., Any]:
    def run(self: BaseHandle[Any, Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._driver.run(flow(self._flows, *args, **kwargs))

    async def run_async(self: BaseHandle[Any, Any], /, *args: Any, **kwargs: Any) -> Any:
        return await self._driver.run(flow(self._flows, *args, **kwargs))

    return wraps(flow)(run_async if is_async else run)


def _iterates(flow: Callable[..., Items[Any]]) -> Callable[..., Any]:
    @wraps(flow)
    def iterate(self: BaseHandle[Any, Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._driver.iterate(flow(self._flows, *args, **kwargs))

    return iterate


def constructs(
    options: Callable[P, A], make: Callable[[Any, A], T]
) -> Callable[Concatenate[Any, P], T]:
    """A method that makes an object from this handle and options, with their signature and doc."""

    def construct(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return make(self, options(*args, **kwargs))

    parameters = inspect.signature(options).parameters.values()
    construct.__doc__ = options.__doc__
    construct.__signature__ = inspect.Signature([_SELF, *parameters])  # type: ignore[attr-defined]
    return construct


class BaseStream(BaseHandle[D, StreamFlows]):
    create = ResultMethod(StreamFlows.create)
    fork = ResultMethod(StreamFlows.fork)
    append = ResultMethod(StreamFlows.append)
    append_json = ResultMethod(StreamFlows.append_json)
    close = ResultMethod(StreamFlows.close)
    delete = ResultMethod(StreamFlows.delete)
    head = ResultMethod(StreamFlows.head)
    read = IteratorMethod(StreamFlows.read)
    read_all = ResultMethod(StreamFlows.read_all)
    read_text = IteratorMethod(StreamFlows.read_text)
    tail = IteratorMethod(StreamFlows.tail)
    read_json = IteratorMethod(StreamFlows.read_json)
    tail_json = IteratorMethod(StreamFlows.tail_json)
    tail_text = IteratorMethod(StreamFlows.tail_text)
    publish_snapshot = ResultMethod(StreamFlows.publish_snapshot)
    snapshot = ResultMethod(StreamFlows.snapshot)
    bootstrap = ResultMethod(StreamFlows.bootstrap)
    bootstrap_parts = IteratorMethod(StreamFlows.bootstrap_parts)
    read_or_bootstrap = IteratorMethod(StreamFlows.read_or_bootstrap)
    read_json_or_bootstrap = IteratorMethod(StreamFlows.read_json_or_bootstrap)


class BaseProducer(BaseHandle[D, P_co]):
    _is_closed = False

    @property
    def producer_id(self) -> str:
        return self._flows.queue.producer_id

    @property
    def epoch(self) -> int:
        """The epoch as given, or as claimed."""
        return self._flows.queue.epoch

    flush = ResultMethod(ProducerFlows.flush)
    close_stream = ResultMethod(ProducerFlows.close_stream)

    def undelivered(self) -> list[bytes]:
        """The messages that are not acknowledged, in order; after an error some may be stored."""
        return self._flows.undelivered()

    def __del__(self) -> None:
        # Without `_flows`, its constructor has failed.
        if not self._is_closed and hasattr(self, "_flows"):
            self._flows.abandon()

    @contextmanager
    def _noting(self, error: BaseException | None) -> Iterator[None]:
        """Close at the end of a `with` block, without hiding an error of the block."""
        try:
            yield
        except Exception as failed:
            if error is None:
                raise
            if failed is not error:
                error.add_note(f"The producer could not deliver everything: {failed}")


class BaseSubscription(BaseHandle[D, SubscriptionFlows]):
    create = ResultMethod(SubscriptionFlows.create)
    get = ResultMethod(SubscriptionFlows.get)
    delete = ResultMethod(SubscriptionFlows.delete)
    add_streams = ResultMethod(SubscriptionFlows.add_streams)
    remove_stream = ResultMethod(SubscriptionFlows.remove_stream)
    claim = ResultMethod(SubscriptionFlows.claim)
    ack = ResultMethod(SubscriptionFlows.ack)
    release = ResultMethod(SubscriptionFlows.release)


class BaseSubscriptions(BaseHandle[D, SubscriptionsFlows]):
    list = IteratorMethod(SubscriptionsFlows.list)
    create = ResultMethod(SubscriptionsFlows.create)
    get = ResultMethod(SubscriptionsFlows.get)
    delete = ResultMethod(SubscriptionsFlows.delete)
    add_streams = ResultMethod(SubscriptionsFlows.add_streams)
    remove_stream = ResultMethod(SubscriptionsFlows.remove_stream)
    claim = ResultMethod(SubscriptionsFlows.claim)
    ack = ResultMethod(SubscriptionsFlows.ack)
    release = ResultMethod(SubscriptionsFlows.release)


class BaseBucket(BaseHandle[D, BucketFlows], Generic[D, S]):
    _stream_type: type[S]

    def stream(self, stream_id: str) -> S:
        """A stream of this bucket; the id is text and is percent-encoded here."""
        url = self._flows.stream_url(stream_id)
        return self._stream_type(self._driver, StreamFlows(url, self._flows.options))

    create = ResultMethod(BucketFlows.create)
    delete = ResultMethod(BucketFlows.delete)
    info = ResultMethod(BucketFlows.info)
    streams = IteratorMethod(BucketFlows.streams)
    survey = ResultMethod(BucketFlows.survey)


class BaseClient(BaseHandle[D, BulkFlows], Generic[D, S, B]):
    _driver_type: Callable[[float], D]
    _stream_type: type[S]
    _bucket_type: type[B]

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, Text] | None = None,
        params: Mapping[str, Text] | None = None,
        retry: Retry | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        options = Options(headers or {}, params or {}, retry or Retry())
        flows = BulkFlows(server_url(url), options)
        super().__init__(self._driver_type(timeout_s), flows)

    def stream(self, path: str) -> S:
        """
        The stream at `/v1/stream/{path}`; the path is text and is percent-encoded here.

        For other servers, whose streams have other URLs, it may be a whole `http://` or `https://`
        URL, which is used unchanged.
        """
        url = stream_url(self.url, path)
        return self._stream_type(self._driver, StreamFlows(url, self._flows.options))

    def bucket(self, bucket_id: str) -> B:
        """The bucket at `/{bucket_id}`."""
        url = bucket_url(self.url, bucket_id)
        return self._bucket_type(self._driver, BucketFlows(url, self._flows.options))

    offsets = ResultMethod(BulkFlows.offsets)
    find = ResultMethod(BulkFlows.find)
    rows = IteratorMethod(BulkFlows.rows)

    @property
    def retry(self) -> Retry:
        """How often a failed request is retried, and after which pauses."""
        return self._flows.options.retry
