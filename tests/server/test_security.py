"""§10.7, CORS as a browser sees it, and the server's own paths."""

from __future__ import annotations

from tests.support.http import Response
from tests.support.looping import for_each
from tests.support.streams import Api, check_common, check_problem

ORIGIN = {"Origin": "https://app.example"}
METHODS = {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"}
# What a browser client of the protocol sends and must be allowed to send.
SENT = [
    "content-type",
    "stream-closed",
    "stream-seq",
    "stream-ttl",
    "stream-expires-at",
    "producer-id",
    "producer-epoch",
    "producer-seq",
    "if-none-match",
    "authorization",
]
# What it reads from responses.
READ = {
    "stream-next-offset",
    "stream-up-to-date",
    "stream-closed",
    "stream-cursor",
    "stream-ttl",
    "stream-expires-at",
    "stream-sse-data-encoding",
    "producer-epoch",
    "producer-seq",
    "producer-expected-seq",
    "producer-received-seq",
    "etag",
    "location",
}


def words(value: str) -> set[str]:
    return {word.strip().lower() for word in value.split(",")}


def responses_of_every_kind(api: Api) -> list[Response]:
    path = api.create(body=b"x" * 2000)
    etag = api.get(path).headers["etag"]
    return [
        api.get(path, headers=ORIGIN),
        api.get(path, headers={"Accept-Encoding": "gzip"}),
        api.get(path, headers={"If-None-Match": etag}),
        api.get(path, "offset=now"),
        api.get(path, "offset=-1&live=long-poll"),
        api.get(path, "offset=bad"),
        api.get(api.path()),
        api.head(path),
        api.head(api.path()),
        api.post(path, b"x"),
        api.post(path, b""),
        api.post(path, b"x", content_type="text/html"),
        api.request("PUT", path, {"Content-Type": "text/plain"}),
        api.request("PUT", path, {"Content-Type": "text/html"}),
        api.request("PUT", api.path()),
        api.request("PATCH", path),
        api.request("OPTIONS", path),
        api.close_stream(path),
        api.get(path, "offset=now&live=long-poll"),
        api.get(path, "offset=-1&live=sse"),
        api.request("DELETE", path),
        api.get(f"{api.server.base_path}/-/health"),
        api.get(f"{api.server.base_path}/-/nothing"),
    ]


def test_every_response_has_the_security_headers(api: Api) -> None:
    """nosniff, Cross-Origin-Resource-Policy and CORS: on successes, errors and 304 alike."""
    for response in responses_of_every_kind(api):
        check_common(response)
        assert words(response.headers["access-control-expose-headers"]) >= READ


@for_each("method", sorted(METHODS - {"OPTIONS"}))
def test_preflight_allows_what_the_protocol_uses(api: Api, method: str) -> None:
    """A browser sends one before a PUT with protocol headers; all of them must be allowed."""
    path = api.path()
    asked = {
        **ORIGIN,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": ",".join(SENT),
    }
    response = api.request("OPTIONS", path, asked)
    assert (response.status, response.body) == (204, b"")
    assert response.headers["access-control-allow-origin"] == "*"
    assert method.lower() in words(response.headers["access-control-allow-methods"])
    assert set(SENT) <= words(response.headers["access-control-allow-headers"])
    assert int(response.headers["access-control-max-age"]) > 0
    assert "access-control-allow-credentials" not in response.headers
    # A preflight creates nothing.
    assert api.head(path).status == 404


@for_each("asked", ["x-request-id", "X-A, traceparent,  content-type", "stream-forked-from"])
def test_preflight_allows_whatever_is_asked_for(api: Api, asked: str) -> None:
    """Libraries, proxies and later versions of the protocol have headers of their own."""
    headers = {**ORIGIN, "Access-Control-Request-Headers": asked}
    response = api.request("OPTIONS", api.path(), headers)
    assert response.status == 204
    assert words(response.headers["access-control-allow-headers"]) >= words(asked)
    assert response.headers["vary"] == "Access-Control-Request-Headers"


@for_each("asked", ["", "a b", "a,,b", "x" * 4097, "ä"])
def test_preflight_does_not_repeat_what_is_not_a_list_of_names(api: Api, asked: str) -> None:
    headers = {**ORIGIN, "Access-Control-Request-Headers": asked}
    response = api.request("OPTIONS", api.path(), headers)
    assert response.status == 204
    assert set(SENT) <= words(response.headers["access-control-allow-headers"])


def test_a_page_can_read_a_stream_of_another_origin(api: Api) -> None:
    """The simple GET that fetch() sends: readable content, readable headers."""
    path = api.create(body=b"x")
    response = api.get(path, headers=ORIGIN)
    assert response.headers["access-control-allow-origin"] in ("*", ORIGIN["Origin"])
    assert {"stream-next-offset", "etag"} <= words(
        response.headers["access-control-expose-headers"]
    )


def test_a_page_can_read_the_error_of_another_origin(api: Api) -> None:
    """Without CORS headers on errors a script would only see a network failure."""
    response = api.post(api.path(), b"x", ORIGIN)
    check_problem(response, 404, "stream-not-found")


def test_a_page_can_read_an_event_stream_of_another_origin(api: Api) -> None:
    """EventSource needs the header on the event stream itself."""
    path = api.create(headers={"Stream-Closed": "true"})
    with api.sse(path) as events:
        assert events.head.headers["access-control-allow-origin"] == "*"


@for_each("name", ["health", "ready"])
def test_health_and_ready(api: Api, name: str) -> None:
    """200 with a small JSON body, not cached; HEAD without the body."""
    path = f"{api.server.base_path}/-/{name}"
    response = api.get(path)
    assert (response.status, response.body) == (200, b'{"status":"ok"}')
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    head = api.head(path)
    assert (head.status, head.body) == (200, b"")
    check_problem(api.request("POST", path, {}, b"x"), 405, "method-not-allowed")


def test_unsupported_methods_are_405(api: Api) -> None:
    """With Allow."""
    path = api.create()
    response = api.request("PATCH", path, {}, b"x")
    check_problem(response, 405, "method-not-allowed")
    assert words(response.headers["allow"]) == {method.lower() for method in METHODS}


def test_unknown_paths_are_404(api: Api) -> None:
    """With their own code, so that a mistyped path does not look like a missing stream."""
    for name in ("/", "/v1/stream", "/v1/streams/x", "/-/", "/-/healthy"):
        response = api.get(api.server.base_path + name)
        check_problem(response, 404, "route-not-found")


@for_each("name", ["a//b", "a/../b", "..", "%2e%2e", "a%5Cb", "a%00b", "%zz", "%ff", "a/"])
def test_invalid_paths_are_400(api: Api, name: str) -> None:
    """§10.2: path traversal, NUL and invalid encodings, for every method."""
    target = f"{api.server.base_path}/v1/stream/{name}"
    for method in ("PUT", "POST", "GET", "DELETE"):
        headers = {"Content-Type": "text/plain"} if method in ("PUT", "POST") else {}
        response = api.request(method, target, headers, b"x" if headers else None)
        check_problem(response, 400, "path-invalid")
    assert api.head(target).status == 400
