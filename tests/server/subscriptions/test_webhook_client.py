"""One attempt of a webhook: good and bad receivers, and addresses that names resolve to."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from tailrace.server.subscriptions import webhook_client
from tailrace.server.subscriptions.addresses import Networks
from tailrace.server.subscriptions.webhook_client import WebhookClient, WebhookResult
from tailrace.server.subscriptions.webhook_sender import ATTEMPTS_MAX
from tests.server.subscriptions.receiver import ACCEPTED, DONE, Receiver, response


def post(url: str, networks: Networks = "loopback") -> WebhookResult:
    async def send() -> WebhookResult:
        client = WebhookClient(networks)
        try:
            return await client.post(url, b'{"a":1}', {"Webhook-Signature": "s"})
        finally:
            await client.close()

    return asyncio.run(send())


def test_a_webhook_is_a_post_of_json() -> None:
    with Receiver() as receiver:
        assert post(receiver.url) == WebhookResult(done=True)
        received = receiver.next()
    assert (received.path, received.body) == ("/hook", b'{"a":1}')
    assert received.headers["content-type"] == "application/json"
    assert received.headers["webhook-signature"] == "s"


NOT_DONE = [
    ACCEPTED,
    response(204),
    response(200, b"not JSON"),
    response(200, b"\xff\xfe"),
    response(200, b"[" * 100_000),
    response(200, b'{"done":1}'),
    response(200, b'{"done":"true"}'),
    response(200, b"[true]"),
    response(200, b'{"done":true,"x":"' + b"y" * (64 << 10) + b'"}'),
    response(200, b'{"done":true}', "Content-Encoding: gzip")[:-13] + b"\x1f\x8b_garbage...",
]


@pytest.mark.parametrize("answer", NOT_DONE)
def test_other_responses_with_2xx_leave_the_lease_to_the_worker(answer: bytes) -> None:
    with Receiver(answer) as receiver:
        assert post(receiver.url) == WebhookResult(done=False)


def test_no_redirect_is_followed() -> None:
    with Receiver() as elsewhere:
        moved = response(307, b"", f"Location: {elsewhere.url}")
        with Receiver(moved) as receiver:
            assert post(receiver.url) == WebhookResult(error="the response has the status 307")
        assert elsewhere.count == 0


@pytest.mark.parametrize(
    "answer",
    [
        response(500, b'{"done":true}'),
        response(404),
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"",
    ],
)
def test_failures_are_told(answer: bytes) -> None:
    with Receiver(answer) as receiver:
        result = post(receiver.url)
    assert result.error
    assert not result.done


def test_a_receiver_that_hangs_fails_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_client, "ATTEMPT_S", 0.2)
    with Receiver(lambda _: None) as receiver:
        assert "no complete response" in post(receiver.url).error
    slow = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
    with Receiver(slow) as receiver:
        assert post(receiver.url).error


def test_a_name_that_resolves_slowly_fails_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_client, "ATTEMPT_S", 0.2)
    ended = threading.Event()

    def resolve(*_: Any, **__: Any) -> list[Any]:
        ended.wait()
        raise socket.gaierror("too late")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert "no complete response" in post("https://slow.example/").error
    ended.set()


def post_beside(
    monkeypatch: pytest.MonkeyPatch, slow: list[str], good: str
) -> tuple[WebhookResult, list[str]]:
    """Post to `good` while names that begin with "slow" resolve; also the names asked for."""
    ended = threading.Event()
    asked: list[str] = []
    system = socket.getaddrinfo

    def resolve(host: str, *rest: Any, **more: Any) -> list[Any]:
        asked.append(host)
        if host.startswith("slow"):
            ended.wait()
            raise socket.gaierror("too late")
        return system(host, *rest, **more)

    async def send() -> WebhookResult:
        client = WebhookClient("loopback")
        tasks = [asyncio.create_task(client.post(url, b"{}", {})) for url in slow]
        try:
            await asyncio.sleep(0.2)
            return await client.post(good, b"{}", {})
        finally:
            ended.set()
            await asyncio.gather(*tasks)
            await client.close()

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(webhook_client, "ATTEMPT_S", 3.0)
    return asyncio.run(send()), asked


def test_names_that_resolve_slowly_do_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [f"https://slow{number}.example/" for number in range(ATTEMPTS_MAX - 1)]
    with Receiver(DONE) as receiver:
        result, _ = post_beside(monkeypatch, slow, f"http://localhost:{receiver.port}/hook")
    assert result.done


def test_a_name_with_many_ports_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [f"https://slow.example:{port}/" for port in range(1, ATTEMPTS_MAX + 1)]
    with Receiver(DONE) as receiver:
        result, asked = post_beside(monkeypatch, slow, f"http://localhost:{receiver.port}/hook")
    assert result.done
    assert asked == ["slow.example", "localhost"]


@pytest.mark.parametrize("what", ["lookup", "thread"])
def test_a_lookup_that_fails_unexpectedly_fails_the_attempt(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """And the next one is made, though there is only one at a time."""

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("unexpected")

    async def send(port: int) -> list[WebhookResult]:
        client = WebhookClient("loopback")
        url = f"http://localhost:{port}/hook"
        try:
            with monkeypatch.context() as patch:
                if what == "lookup":
                    patch.setattr(socket, "getaddrinfo", fail)
                else:
                    patch.setattr(threading.Thread, "start", fail)
                failed = await client.post(url, b"{}", {})
            return [failed, await client.post(url, b"{}", {})]
        finally:
            await client.close()

    monkeypatch.setattr(webhook_client, "ATTEMPTS_MAX", 1)
    monkeypatch.setattr(webhook_client, "ATTEMPT_S", 3.0)
    with Receiver(DONE) as receiver:
        failed, done = asyncio.run(send(receiver.port))
    assert "cannot be resolved" in failed.error
    assert done.done


def test_a_name_that_does_not_exist_fails() -> None:
    assert "cannot be resolved" in post("https://no-such-name.invalid/").error


def test_a_port_where_nobody_listens_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert post(f"http://127.0.0.1:{port}/").error


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "0.0.0.0"]
)
def test_names_that_resolve_to_internal_addresses_are_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """The addresses are checked when the connection is made, not when the URL is."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: resolve(address, *rest, **more)
    )
    result = post("https://example.org/hook")
    assert "does not send webhooks to" in result.error
    assert address not in result.error


def test_one_internal_address_among_others_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, *rest: Any, **more: Any) -> list[Any]:
        found = ("8.8.8.8", "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert "does not send webhooks to" in post("https://example.org/hook").error


def test_a_name_that_resolves_differently_a_second_time_gains_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS rebinding: the connection goes to the address that was checked."""
    asked = []

    def resolve(host: str, port: int, *rest: Any, **more: Any) -> list[Any]:
        asked.append(host)
        text = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with Receiver(DONE) as receiver:
        assert post(f"http://localhost:{receiver.port}/hook").done
    assert asked == ["localhost"]


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/",
        "https://[::ffff:169.254.169.254]/",
        "https://0x7f000001/",
        "https://2130706433/",
        "https://127.1/",
    ],
)
def test_unusual_spellings_of_addresses_are_refused(url: str) -> None:
    assert post(url).error
