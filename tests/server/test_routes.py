"""The table of routes: every route has a handler, a path and docs."""

from __future__ import annotations

import asyncio

from tailrace.engine.engine import Engine
from tailrace.engine.memory import MemoryStore
from tailrace.server.routing.routes import OWN, ROUTES, STREAM, UI
from tailrace.server.routing.target import resolve
from tailrace.server.service import Service, clock_ms
from tailrace.server.settings import Settings
from tests.support.server import REPO_ROOT

EXAMPLES = {
    "{path}": "a/b",
    "{bucket_id}": "bucket",
    "{stream_id}": "stream",
    "{offset}": "-1",
    "{file}": "app.js",
    "{name}": "unknown",
}


def test_each_path_resolves_to_its_own_route() -> None:
    for route in ROUTES:
        path = route.path
        for name, value in EXAMPLES.items():
            path = path.replace(name, value)
        assert resolve(path.encode()).route is route
    assert resolve(b"/bucket/stream").route is STREAM
    assert resolve(b"*").route is OWN


def test_names_and_paths_are_unique() -> None:
    assert len({route.path for route in ROUTES}) == len(ROUTES)
    shared = (OWN.name, UI.name)
    names = [route.name for route in ROUTES if route.name not in shared]
    assert len(set(names)) == len(names)


def test_each_endpoint_has_a_handler() -> None:
    """`Service` looks all of them up in its constructor."""

    async def handlers() -> set[str]:
        engine = Engine(MemoryStore(), clock=clock_ms)
        service = Service(engine, Settings(engine="memory"))
        found = {endpoint.handler for endpoint in service._handlers}
        await service.close()
        await engine.close()
        return found

    wanted = {endpoint.handler for route in ROUTES for endpoint in route.endpoints.values()}
    assert asyncio.run(handlers()) == wanted


def test_only_snapshot_content_is_uploaded_to_a_sink() -> None:
    for route in ROUTES:
        for method, endpoint in route.endpoints.items():
            assert not endpoint.upload or (route.content and method == "PUT")


def test_the_docs_name_each_route() -> None:
    text = (REPO_ROOT / "docs" / "http.md").read_text().replace("…/", "/{bucket_id}/{stream_id}/")
    for route in ROUTES:
        path = route.path.removesuffix("{file}").removesuffix("{path}")
        assert route is OWN or path in text, route.path
