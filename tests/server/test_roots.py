"""The roots of the base surface: `/v1/stream/`, its alias `/v1/streams/`, and a configured one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.server.settings import Settings, SettingsError, load_settings
from tests.operations.building import run
from tests.server.conftest import LONG, Start
from tests.support.looping import for_each
from tests.support.server import ServerProcess
from tests.support.streams import Api, check_problem

TEXT = {"Content-Type": "text/plain"}


@pytest.fixture
def rooted(start: Start) -> Iterator[Api]:
    api = Api(start(*LONG, "--stream-root", "/app/streams/"))
    yield api
    api.close()


@pytest.mark.every_kind
@for_each("root", ["/v1/streams/", "/app/streams/", "/v1/stream/"])
def test_a_stream_is_the_same_at_every_root(rooted: Api, root: str) -> None:
    """Created at one, it is read, appended to and deleted at the others."""
    base = rooted.server.base_path
    path = f"{base}{root}deep/er{root.replace('/', '-')}"
    response = rooted.request("PUT", path, TEXT, b"abc")
    assert response.status == 201
    assert response.headers["location"].endswith(path)
    name = path.removeprefix(base + root)
    for other in ("/v1/streams/", "/app/streams/", "/v1/stream/"):
        assert rooted.get(f"{base}{other}{name}").body.startswith(b"abc")
        rooted.append(f"{base}{other}{name}", b"+")
    assert rooted.get(path).body == b"abc+++"
    assert rooted.request("DELETE", f"{base}/v1/stream/{name}").status == 204
    check_problem(rooted.get(path), 404, "stream-not-found")


@for_each("root", ["/v1/streams/", "/app/streams/", "/v1/stream/"])
def test_the_source_of_a_fork_is_found_at_every_root(rooted: Api, root: str) -> None:
    base = rooted.server.base_path
    source = rooted.create(body=b"abc", path=f"{base}/v1/stream/forked{root.replace('/', '-')}")
    name = source.removeprefix(f"{base}/v1/stream/")
    fork = {"Stream-Forked-From": f"{base}{root}{name}"}
    assert rooted.request("PUT", f"{base}/v1/stream/{name}/fork", fork).status == 201
    # The same source, under another name of it.
    fork = {"Stream-Forked-From": source}
    assert rooted.request("PUT", f"{base}{root}{name}/fork", fork).status == 200


def test_the_alias_needs_no_setting(api: Api) -> None:
    base = api.server.base_path
    assert api.request("PUT", f"{base}/v1/streams/aliased", TEXT, b"abc").status == 201
    assert api.get(f"{base}/v1/stream/aliased").body == b"abc"
    check_problem(api.get(f"{base}/v1/streams/../x"), 400, "path-invalid")


@for_each("root", ["", "/", "streams/", "/streams", "/-/x/", "/a//b/", "/../a/", "/a b/", "/é/"])
def test_a_root_that_cannot_be_used_is_refused(root: str) -> None:
    with pytest.raises(SettingsError, match=r"--stream-root must be a path such as /streams/"):
        load_settings({"stream_root": root}, {})


def test_the_default_root() -> None:
    assert Settings().stream_root == "/v1/stream/"


@pytest.mark.every_kind
def test_a_client_that_was_given_a_bare_host_gets_a_hint(api: Api) -> None:
    """PUT makes a bucket, and POST on it is 405; below a missing bucket it is 404."""
    base = api.server.base_path
    bucket = api.new_bucket()
    problem = check_problem(api.post(f"{base}/{bucket}", b"data"), 405, "method-not-allowed")
    assert "/v1/stream/{path}" in problem["detail"]
    for method in ("PUT", "GET", "POST"):
        response = api.request(method, f"{base}/no-such-bucket/room", TEXT, b"x")
        problem = check_problem(response, 404, "bucket-not-found")
        assert "/v1/stream/{path}" in problem["detail"]
    assert "/v1/stream/" in check_problem(api.post(f"{base}/a/b/c", b"x"), 400)["detail"]
    assert "/v1/stream/" in check_problem(api.post(f"{base}/v1/other/c", b"x"), 404)["detail"]


@pytest.mark.every_kind
def test_a_stream_seq_conflict_says_so(api: Api) -> None:
    """PHP's client looks for these words."""
    path = api.create()
    api.append(path, b"a", {"Stream-Seq": "2"})
    problem = check_problem(api.post(path, b"b", {"Stream-Seq": "1"}), 409, "seq-regression")
    assert "sequence conflict" in problem["detail"]


def test_grants_cover_every_root(tmp_path: Path) -> None:
    """Access is decided by the stream, and not by the path that names it."""
    access = tmp_path / "access.toml"
    token = _token(access)
    options = ("--access", str(access), "--stream-root", "/app/streams/")
    with ServerProcess(tmp_path / "data", *options) as server:
        api = Api(server)
        headers = {**TEXT, "Authorization": f"Bearer {token}"}
        for root in ("/v1/stream/", "/v1/streams/", "/app/streams/"):
            assert api.request("PUT", f"{root}mine/{len(root)}", headers).status == 201
            assert api.request("PUT", f"{root}other/{len(root)}", headers).status == 403
            assert api.request("PUT", f"{root}mine/{len(root)}", TEXT).status == 401
        api.close()


def _token(file: Path) -> str:
    done = run("token", "new", "--file", file, "--name", "me", "--grant", "*:/v1/stream/mine")
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().split()[-1]
