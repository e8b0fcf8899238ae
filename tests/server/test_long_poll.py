"""§5.7: a long-poll returns data at once, or waits for it up to a timeout."""

from __future__ import annotations

import threading

from tests.support.http import Connection, Response
from tests.support.looping import for_each
from tests.support.streams import Api, check_problem

TEXT = "text/plain"


def poll(api: Api, path: str, offset: str, more: str = "") -> Connection:
    """Send a long-poll on its own connection; its response is read later."""
    connection = api.connect(30.0)
    connection.send_request("GET", f"{path}?offset={offset}&live=long-poll{more}")
    return connection


def read(connection: Connection) -> Response:
    response = connection.read_response()
    connection.close()
    return response


def wait_for_pollers() -> None:
    """Give sent requests time to reach the server. Too short a wait only weakens the test."""
    threading.Event().wait(0.05)


def test_existing_data_is_returned_at_once(api: Api) -> None:
    """200 like a catch-up read, with Stream-Cursor."""
    path = api.create(body=b"abc")
    response = read(poll(api, path, "-1"))
    assert (response.status, response.body) == (200, b"abc")
    assert response.headers["stream-next-offset"] == api.tail(path)
    assert response.headers["stream-up-to-date"] == "true"
    assert response.headers["stream-cursor"].isdigit()
    assert "etag" in response.headers


def test_new_data_wakes_a_waiting_reader(api: Api) -> None:
    """With the new bytes only."""
    path = api.create(body=b"old")
    waiting = poll(api, path, api.tail(path))
    wait_for_pollers()
    tail = api.append(path, b"new")
    response = read(waiting)
    assert (response.status, response.body) == (200, b"new")
    assert response.headers["stream-next-offset"] == tail
    assert response.headers["stream-cursor"].isdigit()
    assert response.headers["stream-up-to-date"] == "true"


def test_one_append_wakes_all_waiting_readers(api: Api) -> None:
    """Twenty readers get the same response."""
    path = api.create()
    tail = api.tail(path)
    waiting = [poll(api, path, tail) for _ in range(20)]
    wait_for_pollers()
    api.append(path, b"for all")
    assert {(response.status, response.body) for response in map(read, waiting)} == {
        (200, b"for all")
    }


def test_timeout_is_204_with_offset_up_to_date_and_cursor(short: Api) -> None:
    """Without Stream-Closed, and no-store."""
    path = short.create(body=b"abc")
    tail = short.tail(path)
    for offset in (tail, "now"):
        response = read(poll(short, path, offset))
        assert (response.status, response.body) == (204, b"")
        assert response.headers["stream-next-offset"] == tail
        assert response.headers["stream-up-to-date"] == "true"
        assert response.headers["stream-cursor"].isdigit()
        assert response.headers["cache-control"] == "no-store"
        assert "stream-closed" not in response.headers
        assert "etag" not in response.headers


@for_each("offset", ["tail", "now"])
def test_tail_of_a_closed_stream_is_204_at_once(api: Api, offset: str) -> None:
    """On this server the long-poll timeout is longer than the timeout of the connection."""
    path = api.create(body=b"abc", headers={"Stream-Closed": "true"})
    tail = api.tail(path)
    response = read(poll(api, path, tail if offset == "tail" else "now"))
    assert (response.status, response.body) == (204, b"")
    assert response.headers["stream-closed"] == "true"
    assert response.headers["stream-up-to-date"] == "true"
    assert response.headers["stream-next-offset"] == tail


def test_closing_wakes_a_waiting_reader(api: Api) -> None:
    """With 204 and Stream-Closed."""
    path = api.create()
    waiting = poll(api, path, "now")
    wait_for_pollers()
    api.close_stream(path)
    response = read(waiting)
    assert (response.status, response.headers["stream-closed"]) == (204, "true")


def test_append_and_close_delivers_the_bytes_first(api: Api) -> None:
    """A waiting reader gets the last bytes, with the closure or before it."""
    path = api.create()
    tail = api.tail(path)
    waiting = poll(api, path, tail)
    wait_for_pollers()
    api.append(path, b"last words", {"Stream-Closed": "true"})
    response = read(waiting)
    assert (response.status, response.body) == (200, b"last words")
    assert response.headers["stream-closed"] == "true"
    after = read(poll(api, path, response.headers["stream-next-offset"]))
    assert (after.status, after.headers["stream-closed"]) == (204, "true")


def test_delete_wakes_a_waiting_reader_with_404(api: Api) -> None:
    path = api.create()
    waiting = poll(api, path, "now")
    wait_for_pollers()
    assert api.request("DELETE", path).status == 204
    check_problem(read(waiting), 404, "stream-not-found")


def test_expiry_ends_a_waiting_reader_with_404(api: Api) -> None:
    """The stream expires while the reader waits."""
    path = api.create(headers={"Stream-TTL": "1"})
    check_problem(read(poll(api, path, "now")), 404, "stream-not-found")


def test_a_waiting_reader_of_json_gets_an_array(api: Api) -> None:
    """With the new messages only."""
    path = api.create("application/json", b"[1]")
    waiting = poll(api, path, "now")
    wait_for_pollers()
    api.append(path, b"[2, 3]", content_type="application/json")
    response = read(waiting)
    # A poll that arrives after the append gets the same response.
    assert (response.status, response.body) == (200, b"[2,3]")


def test_a_long_poll_body_ends_at_the_chunk_limit(short: Api) -> None:
    """Without Stream-Up-To-Date if more data exists."""
    path = short.create()
    for _ in range(3):
        short.append(path, b"m" * 60)
    response = read(poll(short, path, "-1"))
    assert (response.status, response.body) == (200, b"m" * 60)
    assert "stream-up-to-date" not in response.headers


def test_a_live_read_without_an_offset_is_400(api: Api) -> None:
    path = api.create()
    check_problem(api.get(path, "live=long-poll"), 400, "query-invalid")


def test_a_chain_of_long_polls_returns_every_byte_once(api: Api) -> None:
    """The reader continues from Stream-Next-Offset while a writer appends."""
    path = api.create()
    expected = b"".join(b"<%d>" % n for n in range(200))

    def write() -> None:
        writer = Api(api.server)
        for n in range(200):
            writer.append(path, b"<%d>" % n)
        writer.close_stream(path)
        writer.close()

    writing = threading.Thread(target=write)
    writing.start()
    seen, offset, cursor = b"", "-1", ""
    with api.connect(30.0) as connection:
        while True:
            query = f"offset={offset}&live=long-poll{cursor}"
            response = connection.request("GET", f"{path}?{query}")
            seen += response.body
            offset = response.headers["stream-next-offset"]
            if response.headers.get("stream-closed") == "true":
                break
            cursor = f"&cursor={response.headers['stream-cursor']}"
    writing.join()
    assert seen == expected


def test_delete_of_a_source_of_forks_wakes_a_waiting_reader_with_410(api: Api) -> None:
    path = api.create(body=b"abc")
    fork = f"{path}-fork"
    assert api.request("PUT", fork, {"Stream-Forked-From": path}).status == 201
    waiting = poll(api, path, api.tail(path))
    wait_for_pollers()
    assert api.request("DELETE", path).status == 204
    check_problem(read(waiting), 410, "stream-gone")
