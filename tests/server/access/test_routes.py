"""
Access control on every route.

Goal: a request is allowed if and only if its principal has the grant. Method: one token for each
operation on each of a list of locations. Each route is requested with each token, and the expected
status is computed from a table of URLs that is independent of the server's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.server.access.samples import AccessToml
from tests.support.http import Response
from tests.support.server import AsgiServerProcess, BaseServerProcess, ServerProcess
from tests.support.streams import Api

OPERATIONS = ("read", "append", "create", "delete", "snapshot", "admin")
UNAUTHORIZED, FORBIDDEN = 401, 403
OFFSET = "0000000000000000_0000000000000000"

ROOM, TEAM = "/chat-rooms/general", "/v1/stream/team/a"
# A resource, and the locations that cover it.
COVERED_BY = {
    ROOM: {"/", "/chat-rooms", "/chat-*", ROOM, "/chat-rooms/gen*", "/chat-rooms/*"},
    TEAM: {"/", "/v1/stream", "/v1/stream/team", TEAM, "/v1/stream/te*"},
    "/chat-rooms": {"/", "/chat-rooms", "/chat-*"},
    "all of /chat-rooms": {"/", "/chat-rooms", "/chat-*", "/chat-rooms/*"},
    "all of /chat-rooms/gen": {"/", "/chat-rooms", "/chat-*", "/chat-rooms/*", "/chat-rooms/gen*"},
    "/-/metrics": {"/", "/-", "/-/metrics"},
    "/-/backup": {"/", "/-", "/-/backup"},
}
ASIDE = {
    "/chat-room0", "/chat-rooms2", "/chat-rooms/genera", "/chat-rooms/generals", "/chat-rooms/x*",
    "/v1/stream/team/ab", "/v1/stream/tea", "/v1/stream/chat-rooms/general", "/-/health",
}  # fmt: skip
LOCATIONS = sorted(ASIDE.union(*COVERED_BY.values()))


@dataclass(frozen=True)
class Route:
    """A request and what it needs: an operation on `where`, any principal (""), nothing (None)."""

    method: str
    path: str
    operation: str | None
    where: str = ""
    body: bytes | None = None
    content_type: str = "text/plain"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def trials(self) -> Iterator[tuple[str, str]]:
        """The right operation on every location, and every operation on the right locations."""
        for operation in OPERATIONS:
            for location in LOCATIONS:
                if operation == self.operation or location in COVERED_BY.get(self.where, {"/"}):
                    yield operation, location

    def expected(self, operation: str, location: str) -> int | None:
        """The status of a rejection of a token with this one grant; None if it is allowed."""
        if not self.operation:
            return None
        good = operation == self.operation and location in COVERED_BY[self.where]
        return None if good else FORBIDDEN


def routes() -> Iterator[Route]:
    for path in (ROOM, TEAM):
        for method, operation in (
            ("GET", "read"), ("HEAD", "read"), ("POST", "append"), ("PUT", "create"),
            ("DELETE", "delete"),
        ):  # fmt: skip
            yield Route(method, path, operation, path, b"x" if method == "POST" else None)
        yield Route("GET", f"{path}?offset=-1&live=long-poll", "read", path)
    for method in ("GET", "HEAD"):
        for below in ("/snapshot", f"/snapshot/{OFFSET}", "/bootstrap"):
            yield Route(method, ROOM + below, "read", ROOM)
        yield Route(method, "/chat-rooms", "read", "/chat-rooms")
        yield Route(method, "/chat-rooms/streams", "read", "all of /chat-rooms")
        yield Route(method, "/chat-rooms/streams?prefix=gen", "read", "all of /chat-rooms/gen")
        yield Route(method, "/-/metrics", "admin", "/-/metrics")
        yield Route(method, "/-/buckets", "")
        yield Route(method, "/-/paths", "")
        yield Route(method, "/-/about?bucket=chat-rooms&stream=general", "read", ROOM)
        yield Route(method, "/-/about?path=team/a", "read", TEAM)
        yield Route(method, "/-/health", None)
        yield Route(method, "/-/ready", None)
        yield Route(method, "/-/ui/", None)
        yield Route(method, "/-/nothing", None)
        yield Route(method, "/v1/nothing", None)
    yield Route("PUT", f"{ROOM}/snapshot/{OFFSET}", "snapshot", ROOM, b"{}")
    yield Route("DELETE", f"{ROOM}/snapshot/{OFFSET}", "snapshot", ROOM)
    yield Route("PUT", "/chat-rooms", "create", "/chat-rooms")
    yield Route("DELETE", "/chat-rooms", "delete", "/chat-rooms")
    yield Route("POST", "/-/backup", "admin", "/-/backup", b"")
    yield Route("POST", "/-/offsets", "", "", b'{"places": []}', "application/json")
    yield Route("POST", "/-/rows", "", "", b'{"ranges": []}', "application/json")
    for path in (ROOM, TEAM, "/chat-rooms", "/chat-rooms/streams", "/-/metrics", "/-/backup"):
        yield Route("OPTIONS", path, None)
        yield Route("PATCH", path, None)
    yield Route("PUT", "/chat-rooms/streams", None)
    yield Route("GET", "/-/backup", None)
    yield Route("POST", "/-/metrics", None, "", b"")


ROUTES = list(routes())
KINDS: dict[str, Callable[..., BaseServerProcess]] = {
    "wire": lambda path, *args: ServerProcess(path, "--engine", "memory", *args),
    "asgi": lambda path, *args: AsgiServerProcess(path, "--engine", "memory", *args),
}


class Guarded:
    """A server with access control, and its tokens."""

    def __init__(self, server: BaseServerProcess, tokens: dict[str, str]) -> None:
        self.api = Api(server)
        self.tokens = tokens
        self.base = server.base_path

    def send(self, route: Route, token: str | None) -> Response:
        headers = {"Content-Type": route.content_type} if route.body is not None else {}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.api.request(route.method, self.base + route.path, headers, route.body)

    def refused(self, route: Route, token: str | None) -> int | None:
        """The status if it is 401 or 403."""
        response = self.send(route, token)
        assert response.status < 500 or response.status == 501, (str(route), response)
        if response.status == UNAUTHORIZED:
            assert response.headers["www-authenticate"].startswith('Bearer realm="tailrace"')
        return response.status if response.status in (UNAUTHORIZED, FORBIDDEN) else None

    def set_up(self) -> None:
        """Create a stream of each protocol."""
        all_ = self.tokens["*:/"]
        for path in ("/chat-rooms", ROOM, TEAM):
            route = Route("PUT", path, "create", body=None if path == "/chat-rooms" else b"")
            assert self.send(route, all_).status in (200, 201, 409)


@pytest.fixture(scope="module", params=["wire", pytest.param("asgi", marks=pytest.mark.slow)])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("routes")
    toml = AccessToml(folder / "access.toml")
    tokens = {"*:/": toml.token("*:/"), "nothing": toml.token()}
    for operation in OPERATIONS:
        for location in LOCATIONS:
            tokens[f"{operation}:{location}"] = toml.token(f"{operation}:{location}")
    options = ("--access", str(toml.path), "--long-poll-s", "0.05")
    with KINDS[request.param](folder / "data", *options) as server:
        made = Guarded(server, tokens)
        yield made
        made.api.close()


def test_a_grant_allows_exactly_its_operation_and_location(guarded: Guarded) -> None:
    wrong = {}
    for route in ROUTES:
        guarded.set_up()
        for operation, location in route.trials():
            status = guarded.refused(route, guarded.tokens[f"{operation}:{location}"])
            if status != route.expected(operation, location):
                wrong[f"{route} with {operation}:{location}"] = status
    assert wrong == {}


def test_without_valid_credentials_only_open_routes_are_allowed(guarded: Guarded) -> None:
    good = guarded.tokens["*:/"]
    for route in ROUTES:
        guarded.set_up()
        expected = None if route.operation is None else UNAUTHORIZED
        assert guarded.refused(route, None) == expected, route
        for bad in ("x", good[:-1], "trt_aaaa_bbbb", "a" * 9000, "eyJhbGciOiJub25lIn0.e30."):
            assert guarded.refused(route, bad) == expected, (route, bad)
        forbidden = FORBIDDEN if route.operation else None
        assert guarded.refused(route, guarded.tokens["nothing"]) == forbidden, route
        assert guarded.refused(route, good) is None, route


def seen(response: Response) -> tuple[object, ...]:
    headers = [item for item in response.headers if item[0] != "date"]
    return response.status, headers, response.body


def test_a_rejection_does_not_reveal_whether_a_resource_exists(guarded: Guarded) -> None:
    """§10.2: equal responses, to clients without any grant or with one elsewhere."""
    all_ = guarded.tokens["*:/"]
    tokens = [None, guarded.tokens["nothing"], guarded.tokens["read:/chat-rooms2"]]
    for route in ROUTES:
        if not route.where.startswith("/"):
            continue
        guarded.set_up()
        existing = [seen(guarded.send(route, token)) for token in tokens]
        for path in (ROOM, TEAM, "/chat-rooms"):
            assert guarded.send(Route("DELETE", path, "delete"), all_).status in (204, 404)
        missing = [seen(guarded.send(route, token)) for token in tokens]
        assert existing == missing, route
        assert [status for status, *_ in missing] == [UNAUTHORIZED, FORBIDDEN, FORBIDDEN], route


def test_each_stream_of_a_bulk_request_is_checked(guarded: Guarded) -> None:
    guarded.set_up()
    places = b'{"places": [%b, %b]}' % (
        b'{"bucket": "chat-rooms", "stream": "general", "message": 0}',
        b'{"path": "team/a", "message": 0}',
    )
    route = Route("POST", "/-/offsets", "", "", places, "application/json")

    def codes(token: str) -> bytes:
        response = guarded.send(route, guarded.tokens[token])
        assert response.status == 200
        return response.body

    both, neither = codes("*:/"), codes("append:/")
    assert both.count(b"forbidden") == 0 and both.count(b'"offset"') == 2, both
    assert neither.count(b"forbidden") == 2 and neither.count(b'"offset"') == 0, neither
    assert codes(f"read:{ROOM}").count(b"forbidden") == 1


def test_rows_contain_only_readable_streams(guarded: Guarded) -> None:
    guarded.set_up()
    secret = b"text that only readers may read"
    all_ = guarded.tokens["*:/"]
    assert guarded.send(Route("POST", ROOM, "", body=secret), all_).status in (200, 204)
    ranges = b'{"ranges": [{"bucket": "chat-rooms", "stream": "general", "start": "-1"}]}'
    route = Route("POST", "/-/rows", "", "", ranges, "application/json")
    for name, is_readable in (
        (f"read:{ROOM}", True),
        ("read:/chat-rooms2", False),
        ("nothing", False),
    ):
        response = guarded.send(route, guarded.tokens[name])
        assert response.status == 200, (name, response.body)
        assert (secret in response.body) == is_readable, name


def test_listings_contain_only_readable_names(guarded: Guarded) -> None:
    guarded.set_up()
    for path in ("/-/paths", "/-/paths?limit=1", "/-/buckets", "/-/buckets?limit=1"):
        for name, token in guarded.tokens.items():
            response = guarded.send(Route("GET", path, ""), token)
            operation, _, location = name.partition(":")
            if operation != "read":
                if operation != "*":
                    assert b"team" not in response.body and b"chat" not in response.body, name
            elif path.startswith("/-/paths"):
                assert (b"team/a" in response.body) == (location in COVERED_BY[TEAM]), (name, path)
            elif not location.startswith("/chat-rooms/"):
                is_listed = location in COVERED_BY["/chat-rooms"]
                assert (b'"chat-rooms"' in response.body) == is_listed, (name, path)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_token_in_the_url_changes_nothing(guarded: Guarded, method: str) -> None:
    guarded.set_up()
    token = guarded.tokens["*:/"]
    for path in (ROOM, TEAM, "/chat-rooms", f"{ROOM}/snapshot/{OFFSET}"):
        response = guarded.send(Route(method, f"{path}?access_token={token}", ""), None)
        assert response.status in (UNAUTHORIZED, 405), path
    read = guarded.send(Route("GET", f"{ROOM}?access_token={token}", ""), None)
    assert read.status == 200
    metrics = guarded.send(Route("GET", f"/-/metrics?access_token={token}", ""), None)
    assert metrics.status == FORBIDDEN


def test_repeated_credentials_are_a_bad_request(guarded: Guarded) -> None:
    token = guarded.tokens["*:/"]
    response = guarded.send(Route("GET", f"{ROOM}?access_token={token}", ""), token)
    assert response.status == 400
    assert b"credentials-repeated" in response.body
    headers = [("Authorization", f"Bearer {token}")] * 2
    with guarded.api.connect() as connection:
        assert connection.request("GET", guarded.base + ROOM, headers).status == 400


def test_responses_are_not_for_shared_caches(guarded: Guarded) -> None:
    guarded.set_up()
    token = guarded.tokens["*:/"]
    assert guarded.send(Route("POST", ROOM, "", body=b"x"), token).status in (200, 204)
    for path in (
        f"{ROOM}?offset=-1",
        f"{ROOM}?offset=-1&live=long-poll",
        f"{ROOM}?offset=-1&access_token={token}",
        "/chat-rooms",
        "/chat-rooms/streams",
        f"{ROOM}/bootstrap",
    ):
        given = None if "access_token" in path else token
        response = guarded.send(Route("GET", path, ""), given)
        assert response.status == 200, path
        control = response.headers["cache-control"]
        assert "public" not in control
        assert "private" in control or "no-" in control, path


def test_snapshots_and_bootstraps_are_private_to_caches(guarded: Guarded) -> None:
    guarded.set_up()
    token = guarded.tokens["*:/"]
    tail = guarded.send(Route("HEAD", ROOM, ""), token).headers["stream-next-offset"]
    snapshot = f"{ROOM}/snapshot/{tail}"
    assert guarded.send(Route("PUT", snapshot, "", body=b"x"), token).status == 204
    for method in ("GET", "HEAD"):
        for path, status, control in (
            (f"{ROOM}/snapshot", 307, "private, no-store"),
            (snapshot, 200, "private, no-cache"),
            (f"{ROOM}/bootstrap", 200, "private, no-store"),
        ):
            response = guarded.send(Route(method, path, ""), token)
            assert response.status == status, path
            assert response.headers["cache-control"] == control
            assert response.headers["vary"] == "Accept-Encoding, Authorization"
    with guarded.api.sse(guarded.base + ROOM, f"offset=now&access_token={token}") as reading:
        assert reading.head.headers["cache-control"] == "private, no-cache"
    assert guarded.send(Route("DELETE", ROOM, ""), token).status == 204


def test_an_appender_may_close_and_a_reader_may_not(guarded: Guarded) -> None:
    guarded.set_up()
    path = guarded.base + ROOM
    for name, status in ((f"read:{ROOM}", FORBIDDEN), (f"append:{ROOM}", 204)):
        headers = {"Authorization": f"Bearer {guarded.tokens[name]}", "Stream-Closed": "true"}
        assert guarded.api.request("POST", path, headers, b"").status == status
    assert guarded.send(Route("DELETE", ROOM, ""), guarded.tokens["*:/"]).status == 204


def test_no_spelling_of_a_path_bypasses_a_grant(guarded: Guarded) -> None:
    guarded.set_up()
    token = guarded.tokens["read:/chat-rooms2"]
    for path in (
        "/chat-rooms%2Fgeneral", "/chat-rooms2/../chat-rooms/general", "//chat-rooms",
        "/chat-rooms2%2F..%2Fchat-rooms", "//chat-rooms/general", "/chat-rooms/./general",
        "/chat-rooms2/%2e%2e/chat-rooms/general",
        "/%63hat-rooms/general", "/chat-rooms/gen%65ral", "/v1/stream/team%2Fa",
        "/v1/stream/%74eam/a", "/%2D/metrics", "/-%2Fmetrics", "/-/metrics/",
        "/-/./metrics", "/-//metrics",
    ):  # fmt: skip
        response = guarded.send(Route("GET", path, ""), token)
        assert response.status in (400, 403, 404), path


def test_a_fork_needs_create_on_itself_and_read_on_its_source(guarded: Guarded) -> None:
    """And the refusal is the same whether the source exists or not."""
    guarded.set_up()
    target = "/chat-rooms/generals"

    def put(source: str, *grants: str) -> Response:
        token = guarded.tokens["nothing"] if not grants else guarded.tokens[grants[0]]
        headers = {
            "Authorization": f"Bearer {token}",
            "Stream-Forked-From": guarded.base + source,
        }
        return guarded.api.request("PUT", guarded.base + target, headers)

    for source in (ROOM, "/chat-rooms/nothing"):
        assert put(source).status == FORBIDDEN
        assert put(source, "read:/").status == FORBIDDEN
        refused = put(source, "create:/")
        assert refused.status == FORBIDDEN
        assert b"read" in refused.body
    assert guarded.refused(Route("HEAD", target, ""), guarded.tokens["*:/"]) is None
    assert put("/chat-rooms/nothing", "*:/").status == 404
    assert put(ROOM, "*:/").status == 201
