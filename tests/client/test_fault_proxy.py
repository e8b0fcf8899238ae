"""The fault proxy itself: without a fault it changes nothing, and it performs each fault."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.fault_plan import Fault, Plan, PlannedFault, Request
from tests.support.fault_proxy import FaultProxy
from tests.support.http import Connection, ProtocolError, Response, request
from tests.support.reading import OCTETS, SseReader
from tests.support.server import ServerProcess
from tests.support.together import HANG_S, wait_until

TEXT = {"Content-Type": "text/plain"}
_names = itertools.count()

# The errors of a connection that was cut, by FIN or by RST.
LOST = (ProtocolError, ConnectionError)


class Only(Plan):
    """One fault for each request of a method, a number of times."""

    def __init__(self, fault: Fault, times: int = 1, method: str = "POST") -> None:
        super().__init__("only", fault, faults=[fault], faults_max=times, retry_after_s=[1])
        self._method = method

    def draw(self, request: Request) -> PlannedFault | None:
        card = None
        if request.method == self._method:
            while card is None and self.faults_planned < self.faults_max:
                card = super().draw(request)
        return card


@pytest.fixture
def path(server: ServerProcess) -> str:
    """A text stream with a unique name."""
    made = f"/v1/stream/proxy/{next(_names)}"
    assert request("PUT", server.url + made, TEXT).status == 201
    return made


@pytest.fixture
def behind(server: ServerProcess) -> Iterator[Callable[..., FaultProxy]]:
    """Makes proxies before the server."""
    opened: list[FaultProxy] = []

    def make(plan: Plan | None = None, refuse_sse: int | None = None) -> FaultProxy:
        proxy = FaultProxy(server.url, plan, refuse_sse=refuse_sse).__enter__()
        opened.append(proxy)
        return proxy

    yield make
    for proxy in opened:
        proxy.__exit__(None, None, None)


def stored(server: ServerProcess, path: str) -> bytes:
    """The stored content of a short stream."""
    return request("GET", server.url + path).body


def append(proxy: FaultProxy, path: str, body: bytes, **headers: str) -> Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return request("POST", proxy.url + path, {**TEXT, **sent}, body)


def test_without_faults_bytes_pass_unchanged(
    server: ServerProcess, behind: Callable[..., FaultProxy]
) -> None:
    """Requests with a length or in chunks, and responses of any kind, on one connection."""
    proxy = behind()
    path = f"/v1/stream/proxy/{next(_names)}"
    data = bytes(range(256)) * 4
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (data[:1], data[1:]))
    with Connection.to(proxy.url) as connection:
        assert connection.request("PUT", path, {"Content-Type": OCTETS}).status == 201
        assert connection.request("POST", path, {"Content-Type": OCTETS}, data).status == 204
        head = {"Content-Type": OCTETS, "Transfer-Encoding": "chunked"}
        connection.send_request("POST", path, head)
        connection.send(chunked + b"0\r\n\r\n")
        assert connection.read_response("POST").status == 204
        assert connection.request("HEAD", path).headers["content-type"] == OCTETS
        first = connection.request("GET", path)
        rest = connection.request("GET", f"{path}?offset={first.headers['stream-next-offset']}")
        assert first.body + rest.body == data + data
        assert connection.request("GET", path + "/none").status == 404
        assert connection.request("POST", path, {"Stream-Closed": "true"}).status == 204
        reader = SseReader(connection, path)
        events = list(reader.events())
        payload = b"".join(reader.payload(event) for event in events if event.kind == "data")
        assert payload == data + data
        assert events[-1].control["streamClosed"]
    assert proxy.exchanges == 9
    assert not proxy.done and not proxy.own_responses


def test_a_request_is_cut_before_the_server_has_it(
    server: ServerProcess, path: str, behind: Callable[..., FaultProxy]
) -> None:
    proxy = behind(Only(Fault.CUT_REQUEST, 20))
    for _ in range(20):
        with pytest.raises(LOST):
            append(proxy, path, b"never" * 20)
    assert append(proxy, path, b"stored").status == 204
    assert stored(server, path) == b"stored"
    assert proxy.done == {Fault.CUT_REQUEST: 20}


def test_a_response_is_cut_after_the_request_was_carried_out(
    server: ServerProcess, path: str, behind: Callable[..., FaultProxy]
) -> None:
    proxy = behind(Only(Fault.CUT_HEAD, 20))
    for _ in range(20):
        with pytest.raises(LOST):
            append(proxy, path, b"x")
    assert stored(server, path) == b"x" * 20
    assert proxy.done == {Fault.CUT_HEAD: 20}


def test_a_body_is_cut(server: ServerProcess, path: str, behind: Callable[..., FaultProxy]) -> None:
    append(behind(), path, b"x" * 100)
    proxy = behind(Only(Fault.CUT_BODY, 10, "GET"))
    for _ in range(10):
        with pytest.raises(LOST):
            request("GET", proxy.url + path)
    assert request("GET", proxy.url + path).body == b"x" * 100
    assert proxy.done == {Fault.CUT_BODY: 10}


def test_an_event_is_cut_in_its_middle(
    server: ServerProcess, path: str, behind: Callable[..., FaultProxy]
) -> None:
    append(behind(), path, b"x" * 100, Stream_Closed="true")
    proxy = behind(Only(Fault.CUT_BODY, 200, "GET"))
    while proxy.done[Fault.CUT_BODY] < 3:
        with Connection.to(proxy.url) as connection:
            reader = SseReader(connection, path)
            assert reader.head.status == 200
            before = proxy.done[Fault.CUT_BODY]
            try:
                list(reader.events())
            except LOST:
                continue
            # It had fewer events than the proxy let through.
            assert proxy.done[Fault.CUT_BODY] == before


def test_a_connection_ends_after_a_complete_response(
    server: ServerProcess, path: str, behind: Callable[..., FaultProxy]
) -> None:
    proxy = behind(Only(Fault.HANG_UP))
    with Connection.to(proxy.url) as connection:
        assert connection.request("POST", path, TEXT, b"x").status == 204
        assert connection.closed_by_peer()
    assert stored(server, path) == b"x"
    assert proxy.done == {Fault.HANG_UP: 1}


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_the_proxy_sends_a_failure_itself(
    fault: Fault, server: ServerProcess, path: str, behind: Callable[..., FaultProxy]
) -> None:
    """Before or after the server carries it out, on a connection that stays open."""
    proxy = behind(Only(fault, 4))
    with Connection.to(proxy.url) as connection:
        answers = [connection.request("POST", path, TEXT, b"x") for _ in range(4)]
        assert {answer.status for answer in answers} == {429, 500, 502, 503}
        assert {answer.headers["retry-after"] for answer in answers} == {"1"}
        assert connection.request("POST", path, TEXT, b"y").status == 204
    assert stored(server, path) == (b"y" if fault is Fault.FAIL_BEFORE else b"xxxxy")
    assert proxy.own_responses == {(status, 1): 1 for status in (429, 500, 502, 503)}


@pytest.mark.parametrize("fault", [Fault.SLOW, Fault.CRUMBS])
def test_a_response_in_pieces_is_unchanged(
    fault: Fault, server: ServerProcess, path: str, behind: Callable[..., FaultProxy]
) -> None:
    body = bytes(range(33, 127)) * 8
    append(behind(), path, body)
    proxy = behind(Only(fault, 2, "GET"))
    with Connection.to(proxy.url) as connection:
        assert connection.request("GET", path).body == body
        reader = SseReader(connection, path)
        events = list(reader.events())
        assert b"".join(reader.payload(event) for event in events if event.kind == "data") == body
    assert proxy.done == {fault: 2}


@pytest.mark.parametrize("fault", [Fault.TWICE_FIRST, Fault.TWICE_SECOND, Fault.TWICE_LATE])
def test_a_request_is_delivered_twice(
    fault: Fault, server: ServerProcess, path: str, behind: Callable[..., FaultProxy]
) -> None:
    """Without a producer it is stored twice; with one, once."""
    proxy = behind(Only(fault, 2))
    assert append(proxy, path, b"x").status == 204
    wait_until(lambda: proxy.done[fault] == 1)
    assert stored(server, path) == b"xx"
    claim = {"Producer_Id": "p", "Producer_Epoch": "0", "Producer_Seq": "0"}
    assert append(proxy, path, b"y", **claim).status in (200, 204)
    wait_until(lambda: proxy.done[fault] == 2)
    assert stored(server, path) == b"xxy"


def test_a_request_is_held_until_another_one_has_passed(
    server: ServerProcess,
    path: str,
    behind: Callable[..., FaultProxy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.support.fault_proxy.HOLD_S", HANG_S)
    plan = Only(Fault.HELD)
    proxy = behind(plan)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(append, proxy, path, b"held")
        wait_until(lambda: plan.faults_planned == 1)
        assert append(proxy, path, b"later, ").status == 204
        assert held.result().status == 204
    assert stored(server, path) == b"later, held"
    assert proxy.done == {Fault.HELD: 1}


def test_event_streams_are_refused(
    server: ServerProcess, path: str, behind: Callable[..., FaultProxy]
) -> None:
    proxy = behind(refuse_sse=406)
    assert request("GET", f"{proxy.url}{path}?offset=-1&live=sse").status == 406
    assert request("GET", f"{proxy.url}{path}?offset=-1").status == 200


def test_a_server_that_is_down_fails_some_requests_and_the_next_one_waits(
    tmp_path: Path,
) -> None:
    with (
        ServerProcess(tmp_path) as server,
        FaultProxy(server.url) as proxy,
        ThreadPoolExecutor(1) as pool,
    ):
        url = f"{proxy.url}/v1/stream/x"
        server.kill()
        for _ in range(10):
            with pytest.raises(LOST):
                request("HEAD", url)
        answer = pool.submit(request, "HEAD", url, timeout=HANG_S)
        server.start()
        assert answer.result().status == 404


def test_a_deck_has_every_fault_and_the_same_order_for_a_seed() -> None:
    post = Request("POST", "/v1/stream/x", {})
    plans = [Plan(seed) for seed in (1, 1, 2)]
    drawn = [[card and card.fault for card in map(plan.draw, [post] * 22)] for plan in plans]
    assert drawn[0] == drawn[1] != drawn[2]
    for cards in drawn:
        assert {fault for fault in cards if fault} == set(Fault) - {Fault.CUT_BODY}
        assert cards.count(None) == 11
