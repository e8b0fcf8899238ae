"""
A small disk that a test can fill: a tmpfs of some megabytes.

If the test may not mount, it uses an unprivileged namespace: a helper process holds the mount, and
the server is started inside that namespace.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.server import REPO_ROOT, ServerProcess

MOUNT_TIMEOUT_S = 60.0


class NoSmallDisk(Exception):
    """The machine allows neither way of mounting; the text says why."""


class SmallDisk:
    """A tmpfs of a given size, for as long as the `with` block lasts."""

    def __init__(self, directory: Path, size: int) -> None:
        directory.mkdir()
        # The path for a server, and the prefix of its command.
        self.path = directory
        self.prefix: list[str] = []
        # The path for the test itself.
        self.here = directory
        self._size = size
        self._mounted = False
        self._holder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", str(self.path)]
        reasons = []
        try:
            subprocess.run(
                mount, check=True, capture_output=True, text=True, timeout=MOUNT_TIMEOUT_S
            )
            self._mounted = True
            return self
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(f"mount: {getattr(error, 'stderr', None) or error}")
        try:
            self._hold(mount)
            return self
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(f"unshare: {error}")
        raise NoSmallDisk("; ".join(reason.strip() for reason in reasons))

    def _hold(self, mount: list[str]) -> None:
        script = '"$@" && echo ready && exec sleep 3600'
        self._holder = subprocess.Popen(
            ["unshare", "-Urm", "sh", "-c", script, "sh", *mount],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._holder.stdout is not None
        line = self._holder.stdout.readline()
        if line != "ready\n":
            self._end_holder()
            raise OSError(line or "it ended without output")
        pid = str(self._holder.pid)
        self.prefix = [
            *("nsenter", "--preserve-credentials", "--user", "--mount"),
            *("--target", pid, f"--wd={REPO_ROOT}", "--"),
        ]
        self.here = Path(f"/proc/{pid}/root") / self.path.relative_to("/")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._mounted:
            # Lazily: a server of a failed test may still use it.
            subprocess.run(["umount", "-l", str(self.path)], check=True, timeout=MOUNT_TIMEOUT_S)
        self._end_holder()

    def _end_holder(self) -> None:
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            if self._holder.stdout is not None:
                self._holder.stdout.close()
            self._holder = None

    @property
    def free_bytes(self) -> int:
        disk = os.statvfs(self.here)
        return disk.f_bavail * disk.f_frsize

    def server(self, *args: str) -> SmallDiskServer:
        """A server with its data on this disk."""
        return SmallDiskServer(self, *args)


class SmallDiskServer(ServerProcess):
    """A server process on a small disk."""

    def __init__(self, disk: SmallDisk, *args: str) -> None:
        super().__init__(disk.path / "data", *args)
        self._prefix = disk.prefix

    def _command(self, port: int) -> list[str]:
        return [*self._prefix, *super()._command(port)]
