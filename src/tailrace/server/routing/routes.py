"""
The table of routes: what the server serves, and every rule that differs from route to route.

To add a route: add an entry to the table, write its handler, construct a new handler class in
`Service.__init__`, and name the path in docs/http.md. `target` finds paths under `/-/` and below a
stream in the table; other paths need a case in `target`. The guard reads the operations and limits
of an entry, the service its handlers, the metrics its name.

Operations that a request must be granted:

    resource              GET, HEAD     PUT         POST      DELETE
    a stream              read          create (2)  append    delete       closing is appending
    a snapshot            read          snapshot              snapshot
    latest, bootstrap     read
    a bucket              read          create                delete
    a listing             read on the bucket, or on all names that begin with ?prefix=
    subscriptions         subscribe     subscribe   subscribe subscribe    (2)
    callback, ack, release                          (3)
    /-/offsets, rows                                (1)
    /-/buckets, paths, about    (1)
    /-/metrics, backup    admin on the route itself
    the rest              none: /-/health, /-/ready, /-/ui/, OPTIONS, unknown paths under /-/

(1) `IDENTIFIED`: any principal. The handler checks each stream and leaves out what it may not read.
(2) A fork needs read on its source too: see `handlers.fork_headers`.
(2) On at least one stream of the bucket or the base surface; the handler checks that the grants
    cover the whole subscription.
(3) None: the handler checks the token of the lease, which is not one of the access file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import partial
from typing import Final

__all__ = ["IDENTIFIED", "ROUTES", "Endpoint", "GrantedOn", "Operation", "Route"]


class Operation(StrEnum):
    """What can be granted."""

    READ = "read"
    APPEND = "append"
    CREATE = "create"
    DELETE = "delete"
    SNAPSHOT = "snapshot"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"


class _Identified(Enum):
    IDENTIFIED = "identified"


IDENTIFIED: Final = _Identified.IDENTIFIED
"""Any principal may send the request; the handler checks its rights."""


class GrantedOn(Enum):
    """What a grant for a route must cover; the value introduces the path in a refusal."""

    STREAM = "the stream"
    STREAM_ABOVE = "the stream of"
    BUCKET = "the bucket"
    LISTED_STREAMS = "all streams listed by"
    ANY_STREAM = "a stream of"
    ROUTE = "the route"


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """One method of a route."""

    handler: str
    """The attribute of `Service` that takes the request and returns a response or a coroutine."""
    operation: Operation | _Identified | None = None
    """What the request must be granted; None: no credentials are needed."""
    replies: bool = False
    """The handler takes `reply` as well and calls it itself, so that it needs no task."""
    upload: bool = False
    """The body is not collected, but goes to the sink that `SnapshotHandlers.upload` returns."""
    metric: str = ""
    """The operation in metrics and traces, if it is not the name of the route."""


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """A resource, its methods, and the rules for requests to it."""

    name: str
    """The operation in metrics and traces; also of a method that the route does not have."""
    path: str
    endpoints: Mapping[str, Endpoint]
    granted_on: GrantedOn = GrantedOn.STREAM
    content: bool = False
    """What is sent here is stored: its bytes count towards the append rate."""
    rate_limited: bool = True
    same_origin: bool = False
    """Without access control, pages of other origins may not request it."""
    subscriptions: bool = False
    """Below `__ds`: error bodies also have the `error` member of the subscription API."""
    allowed: str = field(init=False)
    """The methods, for the `Allow` header."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed", ", ".join((*self.endpoints, "OPTIONS")))


def _get(handler: str, operation: Operation | _Identified | None = None) -> dict[str, Endpoint]:
    """GET, and HEAD by the same handler."""
    endpoint = Endpoint(handler, operation)
    return {"GET": endpoint, "HEAD": endpoint}


_AdminRoute: Final = partial(Route, granted_on=GrantedOn.ROUTE, same_origin=True)
_READ: Final = Operation.READ

APPEND: Final = Endpoint("writes.append", Operation.APPEND, replies=True, metric="append")
READ_STREAM: Final = Endpoint("read", _READ, replies=True, metric="read")

STREAM: Final = Route(
    "unknown",
    "/v1/stream/{path}",
    {
        "GET": READ_STREAM,
        "HEAD": Endpoint("reads.head", _READ, metric="head"),
        "PUT": Endpoint("writes.create", Operation.CREATE, replies=True, metric="create"),
        "POST": APPEND,
        "DELETE": Endpoint("writes.delete", Operation.DELETE, replies=True, metric="delete"),
    },
    content=True,
)
"""Also at /{bucket_id}/{stream_id}."""
BUCKET: Final = Route(
    "bucket",
    "/{bucket_id}",
    {
        **_get("buckets.describe", _READ),
        "PUT": Endpoint("buckets.create", Operation.CREATE, replies=True),
        "DELETE": Endpoint("buckets.delete", Operation.DELETE, replies=True),
    },
    GrantedOn.BUCKET,
)
LISTING: Final = Route(
    "listing", "/{bucket_id}/streams", _get("buckets.list", _READ), GrantedOn.LISTED_STREAMS
)
LATEST_SNAPSHOT: Final = Route(
    "latest snapshot",
    "/{bucket_id}/{stream_id}/snapshot",
    _get("snapshots.latest", _READ),
    GrantedOn.STREAM_ABOVE,
)
SNAPSHOT: Final = Route(
    "snapshot",
    "/{bucket_id}/{stream_id}/snapshot/{offset}",
    {
        **_get("snapshots.read", _READ),
        "PUT": Endpoint("snapshots.publish", Operation.SNAPSHOT, upload=True),
        "DELETE": Endpoint("snapshots.delete", Operation.SNAPSHOT),
    },
    GrantedOn.STREAM_ABOVE,
    content=True,
)
BOOTSTRAP: Final = Route(
    "bootstrap",
    "/{bucket_id}/{stream_id}/bootstrap",
    _get("bootstrap.get", _READ),
    GrantedOn.STREAM_ABOVE,
)
_LeaseRoute: Final = partial(Route, granted_on=GrantedOn.ANY_STREAM, subscriptions=True)
# A subscription to all streams shows their names: see `Guard.check_origin`.
_SubscriptionRoute: Final = partial(_LeaseRoute, same_origin=True)
_SUBSCRIBE: Final = Operation.SUBSCRIBE

SUBSCRIPTION_LISTING: Final = _SubscriptionRoute(
    "subscription listing",
    "/v1/stream/__ds/subscriptions",
    _get("subscriptions.list", _SUBSCRIBE),
)
"""This and the other routes below `__ds` are also at /{bucket_id}/__ds/…"""
SUBSCRIPTION: Final = _SubscriptionRoute(
    "subscription",
    "/v1/stream/__ds/subscriptions/{subscription_id}",
    {
        **_get("subscriptions.describe", _SUBSCRIBE),
        "PUT": Endpoint("subscriptions.create", _SUBSCRIBE),
        "DELETE": Endpoint("subscriptions.delete", _SUBSCRIBE),
    },
)
SUBSCRIPTION_STREAMS: Final = _SubscriptionRoute(
    "subscription streams",
    "/v1/stream/__ds/subscriptions/{subscription_id}/streams",
    {"POST": Endpoint("subscriptions.link", _SUBSCRIBE)},
)
SUBSCRIPTION_STREAM: Final = _SubscriptionRoute(
    "subscription stream",
    "/v1/stream/__ds/subscriptions/{subscription_id}/streams/{stream_path}",
    {"DELETE": Endpoint("subscriptions.unlink", _SUBSCRIBE)},
)
CALLBACK: Final = _LeaseRoute(
    "callback",
    "/v1/stream/__ds/subscriptions/{subscription_id}/callback",
    {"POST": Endpoint("leases.callback")},
)
CLAIM: Final = _SubscriptionRoute(
    "claim",
    "/v1/stream/__ds/subscriptions/{subscription_id}/claim",
    {"POST": Endpoint("leases.claim", _SUBSCRIBE)},
)
ACK: Final = _LeaseRoute(
    "ack",
    "/v1/stream/__ds/subscriptions/{subscription_id}/ack",
    {"POST": Endpoint("leases.ack")},
)
RELEASE: Final = _LeaseRoute(
    "release",
    "/v1/stream/__ds/subscriptions/{subscription_id}/release",
    {"POST": Endpoint("leases.release")},
)
JWKS: Final = _LeaseRoute("jwks", "/v1/stream/__ds/jwks.json", _get("leases.jwks"))
RESERVED: Final = _LeaseRoute(
    "reserved",
    "/v1/stream/__ds/{name}",
    {
        **_get("subscriptions.unknown"),
        **dict.fromkeys(("PUT", "POST", "DELETE"), Endpoint("subscriptions.unknown")),
    },
)
"""Any other path at or below `__ds` of the base surface: never a stream."""
OWN: Final = Route("own", "/-/{name}", _get("status.unknown"), rate_limited=False)
"""Any other path under `/-/`, and `*`."""
UI: Final = Route("ui", "/-/ui/{file}", _get("ui.get"), rate_limited=False)

ROUTES: Final = (
    STREAM,
    BUCKET,
    LISTING,
    LATEST_SNAPSHOT,
    SNAPSHOT,
    BOOTSTRAP,
    SUBSCRIPTION_LISTING,
    SUBSCRIPTION,
    SUBSCRIPTION_STREAMS,
    SUBSCRIPTION_STREAM,
    CALLBACK,
    CLAIM,
    ACK,
    RELEASE,
    JWKS,
    RESERVED,
    Route("offsets", "/-/offsets", {"POST": Endpoint("offsets.find", IDENTIFIED)}),
    Route("rows", "/-/rows", {"POST": Endpoint("rows.read", IDENTIFIED)}),
    Route("buckets", "/-/buckets", _get("overview.buckets", IDENTIFIED), same_origin=True),
    Route("paths", "/-/paths", _get("overview.paths", IDENTIFIED), same_origin=True),
    Route("about", "/-/about", _get("overview.about", IDENTIFIED), same_origin=True),
    Route(
        "subscriptions",
        "/-/subscriptions",
        _get("subscriptions.overview", IDENTIFIED),
        same_origin=True,
    ),
    _AdminRoute("metrics", "/-/metrics", _get("status.metrics", Operation.ADMIN)),
    _AdminRoute("backup", "/-/backup", {"POST": Endpoint("backup.create", Operation.ADMIN)}),
    # A health probe that is refused would take the server out of service: no rate limit.
    Route("own", "/-/health", _get("status.health"), rate_limited=False),
    Route("own", "/-/ready", _get("status.ready"), rate_limited=False),
    Route("ui", "/-/ui", UI.endpoints, rate_limited=False),
    UI,
    OWN,
)
