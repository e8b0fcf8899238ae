"""The server raises its limit of open files to match its limit of connections."""

from __future__ import annotations

import resource
from pathlib import Path

from tests.support.server import ServerProcess


class FrugalServerProcess(ServerProcess):
    """A server started by a shell with low limits."""

    def __init__(self, data_dir: Path, limits: str, *args: str) -> None:
        super().__init__(data_dir, *args)
        self._limits = limits

    def _command(self, port: int) -> list[str]:
        return ["sh", "-c", f'{self._limits}; exec "$@"', "sh", *super()._command(port)]


def soft_limit(server: ServerProcess) -> int:
    return resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0]


def test_the_soft_limit_is_raised(tmp_path: Path) -> None:
    options = ("--engine", "memory", "--connections-max", "1500")
    with FrugalServerProcess(tmp_path, "ulimit -Sn 512", *options) as server:
        assert soft_limit(server) >= 2500
        assert not [event for event in server.events() if event["level"] == "warning"]


def test_a_hard_limit_that_is_too_low_is_logged(tmp_path: Path) -> None:
    options = ("--engine", "memory", "--connections-max", "5000")
    with FrugalServerProcess(tmp_path, "ulimit -n 900", *options) as server:
        assert soft_limit(server) == 900
        (warning,) = [event for event in server.events() if event["level"] == "warning"]
        assert (warning["open_files_max"], warning["connections_max"]) == (900, 450)
