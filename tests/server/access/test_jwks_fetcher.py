"""
The JWKS fetcher: never blocks a lookup, keeps keys when a fetch fails, and looks for unknown keys.

Method: a real HTTP server whose responses, and their delay, the test controls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tailrace.server.guard.access import Access, Principal, jwks_fetcher
from tailrace.server.guard.access.errors import CredentialsRefused, KeysNotReady
from tests.server.access.samples import AccessToml, Signer, bearer, jwks, jwt_table, new_request

ONE = Signer("ES256", "one")
TWO = Signer("ES256", "two")
WAIT_S = 20.0


class Issuer:
    """The HTTP server of the keys."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.elsewhere = b""
        self.headers: dict[str, str] = {}
        self.go = threading.Event()
        self.go.set()
        self.fetched = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.go.wait(WAIT_S)
                is_elsewhere = self.path == "/elsewhere"
                self.send_response(200 if is_elsewhere else issuer.status)
                for name, value in issuer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                # The client may have disconnected.
                with suppress(OSError):
                    self.wfile.write(issuer.elsewhere if is_elsewhere else issuer.body)
                issuer.fetched += 1

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def show(self, *signers: Signer) -> None:
        self.status, self.headers = 200, {}
        self.body = jwks(*(signer.jwk for signer in signers)).encode()

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._thread.join(WAIT_S)
        self._server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


@pytest.fixture
def load(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Access]]:
    """Loads an access file with short waits between fetches."""
    monkeypatch.setattr(jwks_fetcher, "REFRESH_S_MIN", 0.05)
    loaded: list[Access] = []

    def load() -> Access:
        toml = AccessToml(tmp_path / "access.toml")
        toml.put("jwt", jwt_table(issuer.url))
        loaded.append(toml.load())
        return loaded[-1]

    yield load
    for access in loaded:
        access.close()


def identify(access: Access, signer: Signer) -> Principal:
    return access.identify(new_request(headers=bearer(signer.sign())))


def outcome(access: Access, signer: Signer) -> str:
    try:
        return identify(access, signer).id
    except (KeysNotReady, CredentialsRefused) as refusal:
        return refusal.code


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.005)


def test_until_the_first_fetch_requests_get_503(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.show(ONE)
    issuer.go.clear()
    access = load()
    # The lookup does not wait for the fetch.
    assert outcome(access, ONE) == "keys-not-ready"
    issuer.go.set()
    until(lambda: outcome(access, ONE) == "jwt:alice")


def test_a_failed_first_fetch_is_retried(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.status = 500
    access = load()
    until(lambda: issuer.fetched > 1)
    assert outcome(access, ONE) == "keys-not-ready"
    issuer.show(ONE)
    until(lambda: outcome(access, ONE) == "jwt:alice")


def test_an_unknown_key_causes_a_fetch(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.show(ONE)
    access = load()
    until(lambda: outcome(access, ONE) == "jwt:alice")
    issuer.show(ONE, TWO)
    issuer.go.clear()
    assert outcome(access, TWO) == "keys-not-ready"
    # Known keys still verify meanwhile.
    assert outcome(access, ONE) == "jwt:alice"
    issuer.go.set()
    until(lambda: outcome(access, TWO) == "jwt:alice")


def test_a_key_that_is_not_fetched_is_rejected(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.show(ONE)
    access = load()
    until(lambda: outcome(access, ONE) == "jwt:alice")
    until(lambda: outcome(access, TWO) == "credentials-refused")


def test_unknown_keys_do_not_cause_more_fetches(
    issuer: Issuer, load: Callable[[], Access], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks_fetcher, "REFRESH_S_MIN", 60.0)
    issuer.show(ONE)
    access = load()
    until(lambda: outcome(access, ONE) == "jwt:alice")
    count = issuer.fetched
    for number in range(1000):
        forged = Signer.sign(ONE, header={"kid": f"made-up-{number}"})
        with pytest.raises(KeysNotReady):
            access.identify(new_request(headers=bearer(forged)))
    assert issuer.fetched == count
    assert access._verifier is not None
    fetcher = access._verifier._keys
    assert isinstance(fetcher, jwks_fetcher.JwksFetcher)
    assert len(fetcher._wanted_kids) <= 256


def test_a_failed_fetch_keeps_the_previous_keys(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.show(ONE)
    access = load()
    until(lambda: outcome(access, ONE) == "jwt:alice")
    principal = identify(access, ONE)
    failures: list[tuple[int, dict[str, str], bytes]] = [
        (500, {}, b""),
        (404, {}, b""),
        (200, {}, b"<html>"),
        (200, {}, b"[]"),
        (200, {}, b'{"keys": []}'),
        (200, {}, b'{"keys": [{"kty": "none"}]}'),
        (200, {}, b'{"keys": ' + b"[" * 100_000),
        (200, {}, b" " * ((1 << 20) + 1)),
        (302, {"Location": "http://127.0.0.1:9/"}, b""),
        (302, {"Location": "file:///etc/passwd"}, b""),
    ]
    for number, (issuer.status, issuer.headers, issuer.body) in enumerate(failures):
        new = Signer("ES256", f"new-{number}")
        count = issuer.fetched
        assert outcome(access, new) == "keys-not-ready"
        until(lambda count=count: issuer.fetched > count + 1)  # type: ignore[misc]
        assert outcome(access, ONE) == "jwt:alice"
        assert access.is_valid(principal)
        assert outcome(access, new) == "keys-not-ready"
    # It is retried until it succeeds.
    issuer.show(ONE, TWO)
    until(lambda: outcome(access, TWO) == "jwt:alice")


def test_a_redirect_is_not_followed(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.elsewhere = jwks(TWO.jwk).encode()
    issuer.status, issuer.headers = 302, {"Location": "/elsewhere"}
    access = load()
    until(lambda: issuer.fetched > 2)
    assert outcome(access, TWO) == "keys-not-ready"


def test_a_withdrawn_key_no_longer_verifies(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.show(ONE)
    access = load()
    changed = threading.Event()
    access.on_change = changed.set
    until(lambda: outcome(access, ONE) == "jwt:alice")
    principal = identify(access, ONE)
    issuer.show(TWO)
    until(lambda: outcome(access, TWO) == "jwt:alice")
    assert changed.wait(WAIT_S)
    assert not access.is_valid(principal)
    # Nor is its principal cached.
    assert outcome(access, ONE) != "jwt:alice"


def test_a_reload_keeps_the_keys_and_fetches_them_again(
    issuer: Issuer, load: Callable[[], Access]
) -> None:
    issuer.show(ONE)
    access = load()
    until(lambda: outcome(access, ONE) == "jwt:alice")
    principal = identify(access, ONE)
    count = issuer.fetched
    access.reload()
    assert outcome(access, ONE) == "jwt:alice"
    assert access.is_valid(principal)
    until(lambda: issuer.fetched > count)


def test_close_ends_the_thread(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.show(ONE)
    access = load()
    until(lambda: outcome(access, ONE) == "jwt:alice")
    access.close()
    until(lambda: "tailrace-jwks" not in {thread.name for thread in threading.enumerate()})
