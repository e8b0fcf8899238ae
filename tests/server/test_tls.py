"""TLS (§10.8): real handshakes, certificates that are replaced, and the same answers as without."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tailrace.client import Client
from tests.support.certificates import Authority
from tests.support.server import ServerProcess
from tests.support.together import wait_until

TEXT = {"Content-Type": "text/plain"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    certificate, key = authority.issue("first")
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with ServerProcess(tmp_path_factory.mktemp("data"), *options) as started:
        yield started


def connect(server: ServerProcess, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    try:
        return context.wrap_socket(plain, server_hostname="127.0.0.1")
    except BaseException:
        plain.close()
        raise


def https(server: ServerProcess, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection("127.0.0.1", server.port, timeout=10, context=context)


def name_of(server: ServerProcess, authority: Authority) -> str:
    """The common name of the certificate that a new connection is shown."""
    with connect(server, authority.client_context()) as connection:
        certificate = connection.getpeercert()
    assert certificate is not None
    subject = dict(part[0] for part in certificate["subject"])  # type: ignore[misc]
    return str(subject["commonName"])


def test_a_handshake_that_is_verified(server: ServerProcess, authority: Authority) -> None:
    context = authority.client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with connect(server, context) as connection:
        assert connection.version() in ("TLSv1.2", "TLSv1.3")
        assert connection.selected_alpn_protocol() == "http/1.1"
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(server, ssl.create_default_context())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_each_version_that_is_spoken(
    server: ServerProcess, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = authority.client_context()
    context.minimum_version = context.maximum_version = version
    with connect(server, context) as connection:
        connection.sendall(b"GET /-/health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_older_versions_are_refused(server: ServerProcess, authority: Authority) -> None:
    context = authority.client_context()
    # Otherwise this side would not even ask.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        connect(server, context)
    # For no other reason.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    connect(server, context).close()


def test_answers_are_the_same_as_without(server: ServerProcess, authority: Authority) -> None:
    """Create, append, read, a large body both ways; the address of a new stream is https."""
    connection = https(server, authority.client_context())
    connection.request("PUT", "/v1/stream/tls", headers=TEXT)
    created = connection.getresponse()
    created.read()
    assert created.status == 201
    assert created.headers["Location"] == f"https://127.0.0.1:{server.port}/v1/stream/tls"
    body = os.urandom(1 << 19).hex().encode()
    connection.request("POST", "/v1/stream/tls", body, TEXT)
    appended = connection.getresponse()
    appended.read()
    assert appended.status == 204
    connection.request("GET", "/v1/stream/tls")
    assert connection.getresponse().read() == body
    connection.close()


def test_a_live_reader(
    server: ServerProcess, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library, which trusts what the system does, or what SSL_CERT_FILE names."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with Client(f"https://127.0.0.1:{server.port}") as client:
        stream = client.stream("tls-live")
        stream.create("application/json")
        stream.append_json(1, 2)
        found = []
        for item in stream.tail_json():
            found.append(item.value)
            if item.value == 2:
                stream.append_json(3)
            if item.value == 3:
                stream.close()
        assert found == [1, 2, 3]


def test_the_command_line(server: ServerProcess, authority: Authority) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "create", "tls-command"],
        env={
            **os.environ,
            "TAILRACE_URL": f"https://127.0.0.1:{server.port}",
            "SSL_CERT_FILE": str(authority.file),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_a_refusal_amid_a_body_can_be_read(server: ServerProcess, authority: Authority) -> None:
    """Closing with bytes unread would reset the connection and take the response along."""
    with connect(server, authority.client_context()) as connection:
        connection.sendall(
            b"POST /v1/stream/tls HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n"
        )
        with suppress(OSError):
            for _ in range(64):
                connection.sendall(b"x" * 65536)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_plain_bytes_do_not_affect_others(server: ServerProcess, authority: Authority) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
        plain.sendall(b"GET /-/health HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionError):
            assert not plain.recv(4096).startswith(b"HTTP/1.1")
    connection = https(server, authority.client_context())
    connection.request("GET", "/-/health")
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize(("before", "after"), [("ec", "ec"), ("ec", "rsa"), ("rsa", "ec")])
def test_a_certificate_is_replaced_without_dropping_a_connection(
    authority: Authority, tmp_path: Path, before: str, after: str
) -> None:
    """By one of another kind, too: a client could choose the old one if it were still there."""
    certificate, key = authority.issue("before", before)
    after_certificate, after_key = authority.issue("after", after)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key), "--engine", "memory")
    with ServerProcess(tmp_path / "data", *options) as server:
        assert name_of(server, authority) == "before"
        kept = https(server, authority.client_context())
        kept.request("GET", "/-/health")
        assert kept.getresponse().read()
        kept_socket = kept.sock

        # Half of a pair is no pair: nothing changes, and the log says so.
        certificate.write_bytes(after_certificate.read_bytes())
        os.kill(server.pid, signal.SIGHUP)
        wait_until(lambda: any("unchanged" in event["event"] for event in server.events()))
        assert name_of(server, authority) == "before"

        key.write_bytes(after_key.read_bytes())
        os.kill(server.pid, signal.SIGHUP)
        wait_until(lambda: name_of(server, authority) == "after")
        kept.request("GET", "/-/health")
        assert kept.getresponse().read()
        assert kept.sock is kept_socket
        kept.close()


def test_a_key_alone_does_not_serve_in_the_clear(authority: Authority) -> None:
    _, key = authority.issue("alone")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tailrace", "serve", "--port", "0", "--engine", "memory"),
            *("--tls-key", str(key)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "--tls-key needs --tls-cert" in done.stderr) == (2, True)


@pytest.mark.parametrize("wrong", ["missing", "mismatch", "no PEM"])
def test_a_wrong_pair_ends_the_start(authority: Authority, tmp_path: Path, wrong: str) -> None:
    certificate, key = authority.issue("right")
    if wrong == "missing":
        key = tmp_path / "none.key"
    elif wrong == "mismatch":
        _, key = authority.issue("other")
    else:
        key = tmp_path / "text.key"
        key.write_text("no key")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tailrace", "serve", "--port", "0", "--engine", "memory"),
            *("--tls-cert", str(certificate), "--tls-key", str(key)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert str(key) in done.stderr
    assert len(done.stderr.splitlines()) == 1
