"""The files of the web page as both transports serve them; no browser is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tailrace.server.handlers.ui
from tests.support.server import AsgiServerProcess, BaseServerProcess, ServerProcess
from tests.support.streams import Api, check_problem

STATIC = Path(tailrace.server.handlers.ui.__file__).parent / "static"
SERVERS: dict[str, Callable[..., BaseServerProcess]] = {
    "wire": ServerProcess,
    "asgi": AsgiServerProcess,
}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
OTHER_PATHS = (
    "/none.js",
    "/static/app.js",
    "//app.js",
    "/app.js/",
    "/../serving.py",
    "/..%2fserving.py",
    "/%2e%2e/serving.py",
    "/..%5cserving.py",
    "/app.js%00.html",
    "/%61pp.js%2f",
    "/__init__.py",
    "x",
)


@pytest.fixture(scope="module", params=list(SERVERS))
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with SERVERS[request.param](tmp_path_factory.mktemp("files"), "--engine", "memory") as server:
        opened = Api(server)
        yield opened
        opened.close()


def at(api: Api, name: str) -> str:
    return f"{api.server.base_path}/-/ui{name}"


def test_every_file_is_served_with_its_headers(api: Api) -> None:
    for file in STATIC.iterdir():
        response = api.get(at(api, f"/{file.name}"))
        assert (response.status, response.body) == (200, file.read_bytes()), file.name
        headers = response.headers
        assert headers["content-type"] == TYPES[file.suffix]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-cache"
        policy = headers["content-security-policy"].split("; ")
        assert {
            "default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
            "img-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
        } <= set(policy)  # fmt: skip
        assert not re.search(r"unsafe|https?:|\*|data:|blob:", " ".join(policy))


def test_the_index_page(api: Api) -> None:
    response = api.get(at(api, "/"))
    assert (response.status, response.body) == (200, (STATIC / "index.html").read_bytes())
    redirect = api.get(at(api, ""))
    # Relative: correct under any mount.
    assert (redirect.status, redirect.headers["location"]) == (308, "ui/")


def test_head_and_conditional_requests(api: Api) -> None:
    head = api.request("HEAD", at(api, "/app.js"))
    assert (head.status, head.body) == (200, b"")
    again = api.get(at(api, "/app.js"), headers={"If-None-Match": head.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert api.get(at(api, "/app.js"), headers={"If-None-Match": '"other"'}).status == 200
    check_problem(api.request("POST", at(api, "/"), {}, b""), 405)


def test_no_other_path_is_served(api: Api) -> None:
    for name in OTHER_PATHS:
        response = api.get(at(api, name))
        assert response.status in (400, 404), (name, response.body)
        assert response.headers["content-type"] == "application/problem+json", name


def test_the_files_use_no_other_host_and_make_no_markup_from_text() -> None:
    """No inline script or style, and no function that turns text into elements."""
    banned = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment"
        r"|\beval\(|new Function|setTimeout\(\s*[\"'`]|\.style\b|srcdoc"
    )
    for file in STATIC.iterdir():
        text = file.read_text()
        code = re.sub(r"^\s*//.*$", "", text, flags=re.M)
        assert not banned.search(code), (file.name, banned.search(code))
        hosts = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"']*", code))
        assert hosts <= {"http://www.w3.org/2000/svg"}, (file.name, hosts)
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|\son[a-z]+=|<script(?![^>]*\ssrc=)", page)
    for used in re.findall(
        r"from \"\./([a-z]+\.js)\"", "".join(map(Path.read_text, STATIC.glob("*.js")))
    ):
        assert (STATIC / used).exists()
