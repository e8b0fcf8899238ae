"""Without access control, pages of other origins cannot list streams or read metrics."""

from __future__ import annotations

import json

from tests.support.looping import for_each
from tests.support.streams import Api

TELLING = [
    ("GET", "/-/buckets"),
    ("GET", "/-/paths"),
    ("GET", "/-/about?path=x"),
    ("GET", "/-/metrics"),
    ("POST", "/-/backup"),
    ("GET", "/-/subscriptions"),
    ("GET", "/v1/stream/__ds/subscriptions"),
    ("GET", "/v1/stream/__ds/subscriptions/x"),
    ("POST", "/v1/stream/__ds/subscriptions/x/claim"),
]


@for_each(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
@for_each(("method", "path"), TELLING)
def test_a_page_of_another_origin_is_rejected(
    api: Api, method: str, path: str, headers: dict[str, str]
) -> None:
    response = api.request(method, api.server.base_path + path, headers)
    assert (response.status, json.loads(response.body)["code"]) == (403, "cross-origin-refused")


@for_each(("method", "path"), TELLING)
def test_the_servers_own_page_and_programs_are_served(api: Api, method: str, path: str) -> None:
    own = {"Origin": f"http://127.0.0.1:{api.server.port}", "Sec-Fetch-Site": "same-origin"}
    for headers in ({}, own):
        response = api.request(method, api.server.base_path + path, headers)
        assert response.status in (200, 404, 409, 501)


def test_streams_can_be_used_by_pages_of_any_origin(api: Api) -> None:
    path = api.create("text/plain", b"x")
    response = api.request("GET", path, {"Origin": "https://app.example"})
    assert (response.status, response.body) == (200, b"x")
