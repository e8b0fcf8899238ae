"""nginx with the configuration of deploy/, as an ordinary process in a directory of its own.

The shipped file is used as it is, but for the places that are marked CHANGE in
it: where the server is, where nginx listens, and where its files are.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.model import BenchmarkError
from tools.debian import find

SHIPPED = Path(__file__).parents[1] / "deploy" / "nginx" / "tailrace.conf"
START_SECONDS = 20.0
HOW_TO_INSTALL = "nginx is not installed. On Debian or Ubuntu: apt-get install nginx"

# One worker: on two cores, readers, writers and the server need room too.
MAIN = """
{user}
daemon off;
master_process on;
worker_processes 1;
worker_rlimit_nofile {files};
pid {place}/nginx.pid;
error_log {place}/error.log warn;
events {{ worker_connections {connections}; }}
http {{
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    include {place}/tailrace.conf;
}}
"""


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass(frozen=True)
class Changes:
    """What is changed of the shipped file, besides where files are."""

    origin: str
    listen: str
    tls: tuple[Path, Path] | None = None
    """A certificate and its key."""
    short_polls: bool = False
    """For a server with --long-poll-s below 15."""
    by_principal: bool = False
    """Share among the requests of one principal, the second choice."""


def changed(text: str, place: Path, changes: Changes) -> str:
    """The shipped file with these changes."""
    text = _replace(text, r"server 127\.0\.0\.1:4437;", f"server {changes.origin};", 1)
    text = _replace(text, r"/var/cache/nginx/", f"{place}/", 2)
    text = _replace(text, r"/var/log/nginx/", f"{place}/", 1)
    if changes.short_polls:
        text = _replace(text, r"<moment>\.\{18\}", "<moment>.{19}", 1)
        text = _replace(text, r"204::\[0-9\]", "204::0", 1)
    if changes.by_principal:
        text = _replace(text, r'"~(?:\^\[\^ \]|\*access_token)" 1;', "", 2)
    if changes.tls is None:
        return _replace(text, r"listen 80;", f"listen {changes.listen};", 1)
    text = _replace(text, r"listen 80;", "", 1)
    text = _replace(text, r"#listen 443 ", f"listen {changes.listen} ", 1)
    text = _replace(text, r"#ssl_", "ssl_", 3)
    text = _replace(text, r"/etc/ssl/certs/tailrace\.pem", str(changes.tls[0]), 1)
    return _replace(text, r"/etc/ssl/private/tailrace\.key", str(changes.tls[1]), 1)


def _replace(text: str, pattern: str, by: str, times: int) -> str:
    text, found = re.subn(pattern, by.replace("\\", r"\\"), text)
    if found != times:
        raise BenchmarkError(f"{pattern} is {found} times in {SHIPPED.name}, not {times} times")
    return text


def command(place: Path) -> list[str]:
    """nginx on the configuration in a directory."""
    program = find("nginx")
    if program is None:
        raise BenchmarkError(HOW_TO_INSTALL)
    # -e: nginx writes to a log before it has read where its log is.
    return [program, "-p", str(place), "-c", str(place / "nginx.conf"), "-e", f"{place}/error.log"]


def write(place: Path, changes: Changes, *, connections: int = 4096) -> None:
    """Both files, ready for :func:`command`."""
    place.mkdir(parents=True, exist_ok=True)
    # Workers of a root would be somebody who may not look into root's directories.
    user = "user root;" if os.geteuid() == 0 else ""
    main = MAIN.format(user=user, place=place, files=connections + 64, connections=connections)
    (place / "nginx.conf").write_text(main)
    (place / "tailrace.conf").write_text(changed(SHIPPED.read_text(), place, changes))


@contextmanager
def running(
    place: Path,
    origin: str,
    tls: tuple[Path, Path] | None = None,
    *,
    short_polls: bool = False,
    by_principal: bool = False,
    connections: int = 4096,
) -> Iterator[int]:
    """A running nginx before an origin; its port."""
    port = free_port()
    changes = Changes(origin, f"127.0.0.1:{port}", tls, short_polls, by_principal)
    write(place, changes, connections=connections)
    with (place / "output").open("wb") as output:
        process = subprocess.Popen(command(place), stdout=output, stderr=output)
    try:
        _wait(process, port, place)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS)


def _wait(process: subprocess.Popen[bytes], port: int, place: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    told = (place / "output").read_text() + (place / "error.log").read_text()
    raise BenchmarkError(f"nginx did not start:\n{told[-2000:]}")
