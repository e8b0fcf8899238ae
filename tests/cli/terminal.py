"""A command on a terminal: what it prints, and what is typed."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import termios
import time
from types import TracebackType

from tests.cli.conftest import COMMAND, interruptible

LIMIT_S = 60.0


class Terminal:
    """One command on a new terminal."""

    def __init__(self, url: str, *args: str, columns: int = 120, term: str = "xterm") -> None:
        self.seen = ""
        self._master, slave = pty.openpty()
        # Without echo: the terminal shows only what the command prints.
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        with interruptible():
            self.process = subprocess.Popen(
                [*COMMAND, *args],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env={**os.environ, "TAILRACE_URL": url, "COLUMNS": str(columns), "TERM": term},
                start_new_session=True,
            )
        os.close(slave)

    def enter(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until the command has printed this text."""
        while text not in self.seen:
            assert self._read(), f"it ended without {text!r}: {self.seen!r}"

    def finish(self) -> int:
        """Read until the command ends; returns its exit code."""
        while self._read():
            pass
        return self.process.wait(LIMIT_S)

    def without_escapes(self) -> str:
        """What it printed, without control sequences."""
        return re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", self.seen)

    def _read(self) -> bool:
        os.set_blocking(self._master, False)
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            try:
                piece = os.read(self._master, 65536)
            except BlockingIOError:
                time.sleep(0.01)
                continue
            except OSError:
                # Linux: every process has closed the other end.
                return False
            self.seen += piece.decode().replace("\r\n", "\n")
            return bool(piece)
        raise AssertionError(f"no output for {LIMIT_S} s: {self.seen!r}")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_S)
        os.close(self._master)
