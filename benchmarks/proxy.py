"""nginx with the configuration of deploy/, as an ordinary process with its own directory.

The shipped file is used as it is, except for the lines marked CHANGE in it: the
address of the server, the address of nginx, and the paths of files.
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

# One worker: on two cores, readers, writers and the server need time too.
MAIN = """
{user}
daemon off;
master_process on;
worker_processes 1;
worker_rlimit_nofile {files};
pid {directory}/nginx.pid;
error_log {directory}/error.log warn;
events {{ worker_connections {connections}; }}
http {{
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    include {directory}/tailrace.conf;
}}
"""


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass(frozen=True)
class Changes:
    """Changes of the shipped file, besides the paths of files."""

    origin: str
    listen: str
    tls: tuple[Path, Path] | None = None
    """A certificate and its key."""
    short_polls: bool = False
    """For a server with --long-poll-s below 15."""
    by_principal: bool = False
    """Share responses among the requests of one principal: the second variant."""


def changed(text: str, directory: Path, changes: Changes) -> str:
    """The shipped file with these changes."""
    text = _replace(text, r"server 127\.0\.0\.1:4437;", f"server {changes.origin};", 1)
    text = _replace(text, r"/var/cache/nginx/", f"{directory}/", 2)
    text = _replace(text, r"/var/log/nginx/", f"{directory}/", 1)
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
        raise BenchmarkError(f"{pattern} occurs {found} times in {SHIPPED.name}, not {times} times")
    return text


def command(directory: Path) -> list[str]:
    """The command that runs nginx on the configuration in a directory."""
    program = find("nginx")
    if program is None:
        raise BenchmarkError(HOW_TO_INSTALL)
    # -e: nginx opens a log before it has read its configuration.
    return [
        program,
        "-p",
        str(directory),
        "-c",
        str(directory / "nginx.conf"),
        "-e",
        f"{directory}/error.log",
    ]


def write(directory: Path, changes: Changes, *, connections: int = 4096) -> None:
    """Write both configuration files, for :func:`command`."""
    write_text(directory, changed(SHIPPED.read_text(), directory, changes), connections)


def write_text(directory: Path, text: str, connections: int = 4096) -> None:
    """Write the configuration files, with a text instead of the shipped file."""
    directory.mkdir(parents=True, exist_ok=True)
    # By default the workers of root run as a user who cannot read root's directories.
    user = "user root;" if os.geteuid() == 0 else ""
    main = MAIN.format(
        user=user, directory=directory, files=connections + 64, connections=connections
    )
    (directory / "nginx.conf").write_text(main)
    (directory / "tailrace.conf").write_text(text)


@contextmanager
def running(
    directory: Path,
    origin: str,
    tls: tuple[Path, Path] | None = None,
    *,
    short_polls: bool = False,
    by_principal: bool = False,
    connections: int = 4096,
) -> Iterator[int]:
    """Run nginx in front of an origin; yields its port."""
    port = free_port()
    changes = Changes(origin, f"127.0.0.1:{port}", tls, short_polls, by_principal)
    write(directory, changes, connections=connections)
    with started(directory, port):
        yield port


@contextmanager
def started(directory: Path, port: int) -> Iterator[None]:
    """Run nginx on the configuration in a directory, which listens on a port."""
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(command(directory), stdout=output, stderr=output)
    try:
        _wait(process, port, directory)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS)


def _wait(process: subprocess.Popen[bytes], port: int, directory: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    text = (directory / "output").read_text() + (directory / "error.log").read_text()
    raise BenchmarkError(f"nginx did not start:\n{text[-2000:]}")
