"""§5.4: DELETE removes a stream; one created later at the same URL is a new stream."""

from __future__ import annotations

from tests.support.streams import Api, check_problem


def test_delete_is_204_and_then_every_method_is_404(api: Api) -> None:
    path = api.create(body=b"x")
    response = api.request("DELETE", path)
    assert (response.status, response.body) == (204, b"")
    for query in ("", "offset=-1", "offset=now", "offset=-1&live=long-poll", "offset=-1&live=sse"):
        check_problem(api.get(path, query), 404, "stream-not-found")
    check_problem(api.post(path, b"x"), 404, "stream-not-found")
    check_problem(api.request("DELETE", path), 404, "stream-not-found")
    assert api.head(path).status == 404


def test_delete_of_a_stream_that_does_not_exist_is_404(api: Api) -> None:
    check_problem(api.request("DELETE", api.path()), 404, "stream-not-found")


def test_a_closed_stream_can_be_deleted(api: Api) -> None:
    path = api.create(body=b"x", headers={"Stream-Closed": "true"})
    assert api.request("DELETE", path).status == 204
    assert api.head(path).status == 404


def test_a_stream_that_is_created_again_is_a_new_stream(api: Api) -> None:
    """It has no content, type, closure, sequence, producer or ETag of the deleted one."""
    path = api.create(body=b"same")
    producer = {"Producer-Id": "p", "Producer-Epoch": "3", "Producer-Seq": "0", "Stream-Seq": "9"}
    api.append(path, b"!", producer | {"Stream-Closed": "true"})
    old_tail = api.tail(path)
    etag = api.get(path).headers["etag"]
    assert api.request("DELETE", path).status == 204

    api.create("text/html", b"same", path=path)
    assert api.head(path).headers["content-type"] == "text/html"
    assert "stream-closed" not in api.head(path).headers
    check_problem(api.get(path, f"offset={old_tail}"), 400, "offset-beyond-tail")
    fresh = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0", "Stream-Seq": "1"}
    assert api.post(path, b"!", fresh | {"Stream-Closed": "true"}, "text/html").status == 200
    # The same bytes at the same offsets: only the internal id differs.
    again = api.get(path, headers={"If-None-Match": etag})
    assert (again.status, again.body) == (200, b"same!")
    assert again.headers["etag"] != etag


def test_a_stream_that_is_repeatedly_deleted_and_created_is_empty_each_time(api: Api) -> None:
    path = api.path()
    etags = set()
    for n in range(10):
        api.create(body=b"%d" % n, path=path)
        read = api.get(path)
        assert read.body == b"%d" % n
        etags.add(read.headers["etag"])
        assert api.request("DELETE", path).status == 204
    assert len(etags) == 10
