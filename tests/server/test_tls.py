"""TLS (§10.8): real handshakes, replaced certificates, and the same responses as without TLS."""

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
from tailrace.server.tls import Tls, TlsInvalid
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
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    try:
        return context.wrap_socket(plain, server_hostname="127.0.0.1")
    except BaseException:
        plain.close()
        raise


def https(server: ServerProcess, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=context)


def name_of(server: ServerProcess, authority: Authority) -> str:
    """The common name of the certificate that a new connection is shown."""
    with connect(server, authority.client_context()) as connection:
        certificate = connection.getpeercert()
    assert certificate is not None
    subject = dict(part[0] for part in certificate["subject"])  # type: ignore[misc]
    return str(subject["commonName"])


def test_a_client_verifies_the_certificate(server: ServerProcess, authority: Authority) -> None:
    context = authority.client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with connect(server, context) as connection:
        assert connection.version() in ("TLSv1.2", "TLSv1.3")
        assert connection.selected_alpn_protocol() == "http/1.1"
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(server, ssl.create_default_context())


def test_tls_1_2_and_1_3_are_supported(server: ServerProcess, authority: Authority) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = authority.client_context()
        context.minimum_version = context.maximum_version = version
        with connect(server, context) as connection:
            connection.sendall(b"GET /-/health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_older_versions_are_rejected(server: ServerProcess, authority: Authority) -> None:
    context = authority.client_context()
    # Otherwise the client would not offer them.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        connect(server, context)
    # The version is the only reason.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    connect(server, context).close()


def test_responses_are_the_same_as_without_tls(server: ServerProcess, authority: Authority) -> None:
    """Create, append, read; a large body in both directions; `Location` is https."""
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


def test_a_live_reader_of_the_client_library(
    server: ServerProcess, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trusts the certificates of the system, or of SSL_CERT_FILE."""
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


def test_a_response_during_an_upload_can_be_read(
    server: ServerProcess, authority: Authority
) -> None:
    """Closing with unread bytes would reset the connection, and the response would be lost."""
    with connect(server, authority.client_context()) as connection:
        connection.sendall(
            b"POST /v1/stream/tls HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n"
        )
        with suppress(OSError):
            for _ in range(64):
                connection.sendall(b"x" * 65536)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_bytes_without_tls_are_ignored(server: ServerProcess, authority: Authority) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as plain:
        plain.sendall(b"GET /-/health HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionError):
            assert not plain.recv(4096).startswith(b"HTTP/1.1")
    connection = https(server, authority.client_context())
    connection.request("GET", "/-/health")
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ec", "rsa"),
        pytest.param("ec", "ec", marks=pytest.mark.slow),
        pytest.param("rsa", "ec", marks=pytest.mark.slow),
    ],
)
def test_a_certificate_is_replaced_without_dropping_a_connection(
    authority: Authority, tmp_path: Path, before: str, after: str
) -> None:
    """Also by another type of key: a client could select the old one if it were still there."""
    certificate, key = authority.issue("before", before)
    after_certificate, after_key = authority.issue("after", after)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key), "--engine", "memory")
    with ServerProcess(tmp_path / "data", *options) as server:
        assert name_of(server, authority) == "before"
        kept = https(server, authority.client_context())
        kept.request("GET", "/-/health")
        assert kept.getresponse().read()
        kept_socket = kept.sock

        # A certificate without its key changes nothing, and is logged.
        certificate.write_bytes(after_certificate.read_bytes())
        os.kill(server.pid, signal.SIGHUP)
        wait_until(lambda: any(event["level"] == "error" for event in server.events()))
        assert name_of(server, authority) == "before"

        key.write_bytes(after_key.read_bytes())
        os.kill(server.pid, signal.SIGHUP)
        wait_until(lambda: name_of(server, authority) == "after")
        kept.request("GET", "/-/health")
        assert kept.getresponse().read()
        assert kept.sock is kept_socket
        kept.close()


def test_a_key_without_a_certificate_is_an_error(authority: Authority) -> None:
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


def test_an_invalid_pair_ends_the_start(authority: Authority, tmp_path: Path) -> None:
    certificate, _ = authority.issue("right")
    text = tmp_path / "text.key"
    text.write_text("no key")
    for key in (tmp_path / "none.key", authority.issue("other")[1], text):
        with pytest.raises(TlsInvalid, match=key.name):
            Tls(str(certificate), str(key))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tailrace", "serve", "--port", "0", "--engine", "memory"),
            *("--tls-cert", str(certificate), "--tls-key", str(text)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert str(text) in done.stderr
    assert len(done.stderr.splitlines()) == 1
