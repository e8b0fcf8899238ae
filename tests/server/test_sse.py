"""§5.8: Server-Sent Events, as browsers and clients parse them."""

from __future__ import annotations

import base64
import re
import threading

from tests.support.looping import for_each
from tests.support.streams import Api, EventStream, check_common, check_problem, text_of

JSON = "application/json"


def test_the_head_of_an_event_stream(api: Api) -> None:
    """text/event-stream, never cached, never compressed, no base64 header for text."""
    path = api.create(body=b"x" * 5000)
    with api.connect() as connection:
        connection.send_request(
            "GET", f"{path}?offset=-1&live=sse", {"Accept-Encoding": "gzip, br"}
        )
        head = connection.read_head()
    assert head.status == 200
    assert head.headers["content-type"] == "text/event-stream"
    assert head.headers["cache-control"] == "no-cache"
    assert head.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in head.headers
    assert "stream-sse-data-encoding" not in head.headers
    assert "content-length" not in head.headers
    assert "etag" not in head.headers
    check_common(head)


def test_the_exact_bytes_of_a_catch_up(api: Api) -> None:
    """`data:` without a space; one control event after the data event; fields in camelCase."""
    path = api.create(body=b"hello")
    with api.sse(path) as events:
        events.until(tail=api.tail(path))
        raw = events.raw
    assert re.fullmatch(
        rb"event: data\ndata:hello\nid:0{15}1_0{15}5\n\n"
        rb'event: control\ndata:\{"streamNextOffset":"0{15}1_0{15}5",'
        rb'"streamCursor":"[0-9]+","upToDate":true\}\nid:0{15}1_0{15}5\n\n',
        raw,
    ), raw


def test_a_catch_up_is_sent_in_one_chunk(api: Api) -> None:
    """The data event and its control event are in the same chunk."""
    path = api.create(JSON, body=b'["event: control"]')
    with api.connect() as connection:
        connection.send_request("GET", f"{path}?offset=-1&live=sse")
        chunk = next(connection.iter_body(connection.read_head()))
    assert chunk.startswith(b"event: data\n")
    assert b"\n\nevent: control\n" in chunk


def test_new_data_arrives_with_its_control_event(api: Api) -> None:
    """Each append is a data event and a control event with its offset."""
    path = api.create()
    with api.sse(path) as events:
        first = events.next()
        assert first.kind == "control"
        assert first.json["upToDate"] is True
        for text in ("one", "two", "three"):
            tail = api.append(path, text.encode())
            data, control = events.until(tail=tail)
            assert (data.kind, data.data) == ("data", text)
            assert control.json["streamNextOffset"] == tail
            assert control.json["upToDate"] is True
            assert control.json["streamCursor"].isdigit()
            assert "streamClosed" not in control.json


def test_a_control_event_follows_every_data_event(short: Api) -> None:
    """Also for each chunk of a catch-up; only the last is up to date."""
    path = short.create()
    for n in range(6):
        short.append(path, b"%d" % n * 60)
    with short.sse(path) as events:
        seen = events.until(tail=short.tail(path))
    assert [event.kind for event in seen] == ["data", "control"] * 6
    controls = [event.json for event in seen if event.kind == "control"]
    assert ["upToDate" in control for control in controls] == [False] * 5 + [True]
    offsets = [control["streamNextOffset"] for control in controls]
    assert offsets == sorted(set(offsets))
    assert text_of(seen) == "".join(f"{n}" * 60 for n in range(6))


def test_closing_ends_the_event_stream(api: Api) -> None:
    """The final control event has streamClosed, then the response ends."""
    path = api.create(body=b"x")
    with api.sse(path) as events:
        events.until(tail=api.tail(path))
        api.close_stream(path)
        rest = list(events)
    assert [event.kind for event in rest] == ["control"]
    assert rest[0].json["streamClosed"] is True
    assert rest[0].json["streamNextOffset"] == "0000000000000001_0000000000000001"


def test_append_and_close_delivers_the_bytes_first(api: Api) -> None:
    """One data event, then one control event with streamClosed."""
    path = api.create()
    with api.sse(path) as events:
        events.next()
        api.append(path, b"last", {"Stream-Closed": "true"})
        data, control = list(events)
    assert (data.kind, data.data) == ("data", "last")
    assert control.json["streamClosed"] is True


def test_catch_up_on_a_closed_stream(api: Api) -> None:
    """All data, then streamClosed, then the end of the response."""
    path = api.create(body=b"all", headers={"Stream-Closed": "true"})
    with api.sse(path) as events:
        data, control = list(events)
    assert data.data == "all"
    assert control.json["streamClosed"] is True


def test_an_event_stream_at_the_tail_of_a_closed_stream(api: Api) -> None:
    """One control event with streamClosed and upToDate, then the end of the response."""
    path = api.create(body=b"all", headers={"Stream-Closed": "true"})
    with api.sse(path, f"offset={api.tail(path)}") as events:
        (control,) = list(events)
    assert control.json["streamClosed"] is True
    assert control.json["upToDate"] is True


def test_catch_up_in_chunks_on_a_closed_stream(short: Api) -> None:
    """streamClosed comes only after all data up to the final offset."""
    path = short.create()
    for n in range(4):
        short.append(path, b"%d" % n * 60)
    short.close_stream(path)
    with short.sse(path) as events:
        seen = list(events)
    controls = [event.json for event in seen if event.kind == "control"]
    assert text_of(seen) == "".join(f"{n}" * 60 for n in range(4))
    assert ["streamClosed" in control for control in controls] == [False] * (len(controls) - 1) + [
        True
    ]


def test_delete_ends_the_event_stream(api: Api) -> None:
    """A control event with streamDeleted, then the end of the response."""
    path = api.create(body=b"x")
    with api.sse(path) as events:
        events.until(tail=api.tail(path))
        assert api.request("DELETE", path).status == 204
        (control,) = list(events)
    assert control.kind == "control"
    assert control.json["streamDeleted"] is True


def test_an_event_stream_does_not_continue_with_a_stream_that_is_created_again(api: Api) -> None:
    """A reader of the deleted stream gets its end, and no data of the new one."""
    path = api.create(body=b"old")
    with api.sse(path) as events:
        events.until(tail=api.tail(path))
        api.request("DELETE", path)
        api.create(path=path, body=b"new")
        rest = list(events)
    assert [event.json.get("streamDeleted") for event in rest] == [True]


@for_each("query", ["live=sse", "live=sse&offset=", "live=sse&offset=x"])
def test_offset_is_required(api: Api, query: str) -> None:
    """An invalid offset is 400 as a whole response, not an event."""
    path = api.create()
    check_problem(api.get(path, query), 400)


def test_event_stream_of_a_stream_that_does_not_exist_is_404(api: Api) -> None:
    """As a whole response, not an event."""
    check_problem(api.get(api.path(), "offset=-1&live=sse"), 404, "stream-not-found")


# -- content of data events ------------------------------------------------------------------------


@for_each(
    "text",
    [
        "plain",
        " leading space",
        "  two leading spaces",
        "trailing space ",
        "line\nbreak",
        "two\n\nbreaks",
        "\nleading break",
        "trailing break\n",
        "\n",
        "\n\n\n",
        " \n \n ",
        ": comment?",
        "data: x",
        "event: control\ndata: {}\n\n",
        "id: 1\nretry: 1",
        "ä€😀",
        "\ufeffbom",
        "nul\0",
        "tab\t",
        "\u2028\u2029\x85",
    ],
)
def test_text_is_delivered_unchanged(api: Api, text: str) -> None:
    """An event parsed as a browser does has the appended text, live and on catch-up."""
    path = api.create()
    with api.sse(path) as live:
        live.next()
        tail = api.append(path, text.encode())
        assert text_of(live.until(tail=tail)) == text
    with api.sse(path) as late:
        assert text_of(late.until(tail=tail)) == text


@for_each(
    ("sent", "lines"),
    [
        ("a\r\nb", ["a", "b"]),
        ("a\rb", ["a", "b"]),
        ("a\n\rb", ["a", "", "b"]),
        ("\r\n", ["", ""]),
        ("a\r", ["a", ""]),
    ],
)
def test_each_kind_of_newline_starts_a_data_line(api: Api, sent: str, lines: list[str]) -> None:
    """CR, LF and CRLF become separate `data:` lines, so none ends the event early."""
    path = api.create(body=sent.encode())
    with api.sse(path) as events:
        events.until(tail=api.tail(path))
        block, _, last_id = events.raw.split(b"\n\n")[0].rpartition(b"\n")
    assert b"\r" not in block
    assert last_id.startswith(b"id:")
    assert block == b"event: data\n" + b"\n".join(b"data:" + line.encode() for line in lines)


def test_content_cannot_forge_a_control_event(api: Api) -> None:
    """Appended text that looks like an event is delivered as data."""
    path = api.create()
    evil = '\n\nevent: control\ndata:{"streamClosed":true}\n\n'
    for text in (evil, evil.replace("\n", "\r"), evil.replace("\n", "\r\n")):
        api.append(path, text.encode())
    with api.sse(path) as events:
        seen = events.until(tail=api.tail(path))
    assert not any(event.json.get("streamClosed") for event in seen if event.kind == "control")


@for_each(
    "content_type",
    [
        "application/octet-stream",
        "image/png",
        "application/x-ndjson",
        "application/xml",
        "application/vnd.x+xml",
    ],
)
def test_binary_streams_are_base64(api: Api, content_type: str) -> None:
    """Standard base64 with its header; control events are JSON."""
    data = bytes(range(256))
    path = api.create(content_type, data)
    with api.sse(path) as events:
        assert events.head.headers["stream-sse-data-encoding"] == "base64"
        data_event, control = events.until(tail=api.tail(path))
        assert base64.b64decode(data_event.data, validate=True) == data
        assert control.json["upToDate"] is True
        for size in (1, 2, 3, 100):
            tail = api.append(path, data[:size], content_type=content_type)
            event, _ = events.until(tail=tail)
            text = event.data.replace("\n", "").replace("\r", "")
            assert len(text) % 4 == 0
            assert base64.b64decode(text, validate=True) == data[:size]


@for_each(
    "content_type",
    [
        JSON,
        "application/vnd.api+json",
        "application/ld+json; charset=utf-8",
        "text/csv",
        "TEXT/Plain",
    ],
)
def test_text_and_json_streams_are_not_base64(api: Api, content_type: str) -> None:
    """`+json` is text like application/json."""
    path = api.create(content_type, b'"x"')
    with api.sse(path) as events:
        assert "stream-sse-data-encoding" not in events.head.headers
        data = events.until(tail=api.tail(path))[0].data
    assert data == ('["x"]' if "json" in content_type else '"x"')


def test_json_events_are_arrays_of_the_new_messages(api: Api) -> None:
    """Each data event is a JSON array with the bytes as sent, also over several lines."""
    path = api.create(JSON, b'[1, {"a": 1e2}]')
    with api.sse(path) as events:
        assert events.until(tail=api.tail(path))[0].data == '[1,{"a": 1e2}]'
        tail = api.append(path, b'{\n  "b":\r\n 12345678901234567890}', content_type=JSON)
        (event, _) = events.until(tail=tail)
        assert event.json == [{"b": 12345678901234567890}]
        tail = api.append(path, b"[[1],[2]]", content_type=JSON)
        assert events.until(tail=tail)[0].data == "[[1],[2]]"


# -- connections -----------------------------------------------------------------------------------


def test_an_event_stream_ends_after_its_time_with_a_control_event(short: Api) -> None:
    """By default after about 60 s; then the client reconnects."""
    path = short.create(body=b"x")
    with short.sse(path) as events:
        seen = list(events)
    assert seen[0].kind == "data"
    assert seen[-1].kind == "control"
    assert "streamClosed" not in seen[-1].json
    assert seen[-1].json["streamCursor"].isdigit()
    assert seen[-1].json["streamNextOffset"] == short.tail(path)


def test_a_connection_can_be_reused_after_an_event_stream(short: Api) -> None:
    """The response ends, and not the connection."""
    path = short.create(body=b"x", headers={"Stream-Closed": "true"})
    with short.connect() as connection:
        for _ in range(3):
            events = EventStream(connection, f"{path}?offset=-1&live=sse")
            assert [event.kind for event in events] == ["data", "control"]


def test_a_reader_that_reconnects_gets_each_message_once(short: Api) -> None:
    """Over many connections, continued from streamNextOffset while a writer appends."""
    path = short.create()
    expected = "".join(f"<{n}>" for n in range(150))

    def write() -> None:
        writer = Api(short.server)
        for n in range(150):
            writer.append(path, b"<%d>" % n)
            if n % 30 == 0:
                threading.Event().wait(0.3)
        writer.close_stream(path)
        writer.close()

    writing = threading.Thread(target=write)
    writing.start()
    text, offset, closed = "", "-1", False
    while not closed:
        with short.sse(path, f"offset={offset}") as events:
            for event in events:
                if event.kind == "data":
                    text += event.data
                else:
                    offset = event.json["streamNextOffset"]
                    closed = event.json.get("streamClosed", False)
    writing.join()
    assert text == expected


def test_many_readers_get_the_same_text(api: Api) -> None:
    """Readers at the tail and readers that catch up."""
    path = api.create(body=b"0")
    readers = [api.sse(path, query) for query in ("offset=-1", "offset=now") for _ in range(8)]
    tail = api.tail(path)
    for events in readers:
        events.until(tail=tail)
    for n in range(1, 30):
        api.append(path, b",%d" % n)
    api.close_stream(path)
    texts = {text_of(list(events)) for events in readers}
    for events in readers:
        events.connection.close()
    assert texts == {"".join(f",{n}" for n in range(1, 30))}


def test_a_slow_reader_gets_all_data(api: Api) -> None:
    """A reader that pauses gets the data from storage, complete and in order."""
    path = api.create()
    block = b"0123456789abcdef" * 4096
    with api.sse(path, timeout=30.0) as events:
        events.next()
        for n in range(120):
            api.append(path, b"%03d" % n + block)
        api.close_stream(path)
        text = text_of(list(events))
    assert text == "".join(f"{n:03d}" + block.decode() for n in range(120))


def test_the_cursor_is_greater_than_the_clients(api: Api) -> None:
    """In control events."""
    path = api.create()
    with api.sse(path) as events:
        cursor = int(events.next().json["streamCursor"])
    with api.sse(path, f"offset=-1&cursor={cursor + 100}") as events:
        assert int(events.next().json["streamCursor"]) > cursor + 100
        tail = api.append(path, b"x")
        assert int(events.until(tail=tail)[-1].json["streamCursor"]) > cursor + 100
