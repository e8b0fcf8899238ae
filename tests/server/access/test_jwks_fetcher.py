"""
Keys of an address: fetched beside everything else, kept when that fails, looked for when unknown.

Method: a real HTTP server that answers what the test says, and waits where the test says.
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
from tests.server.access.samples import AccessToml, Signer, asking, bearer, jwks, jwt_table

ONE = Signer("ES256", "one")
TWO = Signer("ES256", "two")
WAIT_S = 20.0


class Issuer:
    """Where keys are fetched from."""

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
                # Who asked may have had enough.
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
    """With these waits a test sees what takes minutes elsewhere."""
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
    return access.identify(asking(headers=bearer(signer.sign())))


def outcome(access: Access, signer: Signer) -> str:
    try:
        return identify(access, signer).id
    except (KeysNotReady, CredentialsRefused) as refusal:
        return refusal.code


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def test_until_keys_are_there_everybody_is_told_to_come_again(
    issuer: Issuer, load: Callable[[], Access]
) -> None:
    issuer.show(ONE)
    issuer.go.clear()
    access = load()
    # Nobody waits for the fetch, which goes on.
    assert outcome(access, ONE) == "keys-not-ready"
    issuer.go.set()
    until(lambda: outcome(access, ONE) == "jwt:alice")


def test_an_issuer_that_is_down_at_first_is_asked_again(
    issuer: Issuer, load: Callable[[], Access]
) -> None:
    issuer.status = 500
    access = load()
    until(lambda: issuer.fetched > 1)
    assert outcome(access, ONE) == "keys-not-ready"
    issuer.show(ONE)
    until(lambda: outcome(access, ONE) == "jwt:alice")


def test_a_key_that_is_new_is_looked_for(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.show(ONE)
    access = load()
    until(lambda: outcome(access, ONE) == "jwt:alice")
    issuer.show(ONE, TWO)
    issuer.go.clear()
    assert outcome(access, TWO) == "keys-not-ready"
    # Those who are known are not held up meanwhile.
    assert outcome(access, ONE) == "jwt:alice"
    issuer.go.set()
    until(lambda: outcome(access, TWO) == "jwt:alice")


def test_a_key_that_nobody_has_is_refused_in_the_end(
    issuer: Issuer, load: Callable[[], Access]
) -> None:
    issuer.show(ONE)
    access = load()
    until(lambda: outcome(access, ONE) == "jwt:alice")
    until(lambda: outcome(access, TWO) == "credentials-refused")


def test_unknown_keys_do_not_make_it_ask_more_often(
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
            access.identify(asking(headers=bearer(forged)))
    assert issuer.fetched == count
    assert access._jwts is not None and access._jwts._fetched is not None
    assert len(access._jwts._fetched._asked) <= 256


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
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
    ],
)
def test_a_fetch_that_fails_leaves_the_keys_that_there_were(
    issuer: Issuer,
    load: Callable[[], Access],
    status: int,
    headers: dict[str, str],
    body: bytes,
) -> None:
    issuer.show(ONE)
    access = load()
    until(lambda: outcome(access, ONE) == "jwt:alice")
    principal = identify(access, ONE)
    issuer.status, issuer.headers, issuer.body = status, headers, body
    count = issuer.fetched
    assert outcome(access, TWO) == "keys-not-ready"
    until(lambda: issuer.fetched > count)
    assert outcome(access, ONE) == "jwt:alice"
    assert access.is_valid(principal)
    # And it goes on trying.
    issuer.show(ONE, TWO)
    until(lambda: outcome(access, TWO) == "jwt:alice")


def test_a_redirect_is_not_followed(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.elsewhere = jwks(TWO.jwk).encode()
    issuer.status, issuer.headers = 302, {"Location": "/elsewhere"}
    access = load()
    until(lambda: issuer.fetched > 2)
    assert outcome(access, TWO) == "keys-not-ready"


def test_a_key_that_is_withdrawn_verifies_nothing_any_more(
    issuer: Issuer, load: Callable[[], Access]
) -> None:
    issuer.show(ONE)
    access = load()
    told = threading.Event()
    access.on_change = told.set
    until(lambda: outcome(access, ONE) == "jwt:alice")
    principal = identify(access, ONE)
    issuer.show(TWO)
    until(lambda: outcome(access, TWO) == "jwt:alice")
    assert told.wait(WAIT_S)
    assert not access.is_valid(principal)
    # Not out of the cache either.
    assert outcome(access, ONE) != "jwt:alice"


def test_a_reload_keeps_the_keys_and_fetches_them_anew(
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


def test_a_closed_one_fetches_no_more(issuer: Issuer, load: Callable[[], Access]) -> None:
    issuer.show(ONE)
    access = load()
    until(lambda: outcome(access, ONE) == "jwt:alice")
    access.close()
    until(lambda: "tailrace-jwks" not in {thread.name for thread in threading.enumerate()})
