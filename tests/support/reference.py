"""
The reference server of the protocol (npm's `@durable-streams/server`), run by the wheel's Node.

`make test` installs it in `tests/reference`; a bare `pytest` does so here.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tests.support import node
from tests.support.server import REPO_ROOT, BaseServerProcess

HERE = REPO_ROOT / "tests" / "reference"
_SERVE = HERE / "serve.mjs"

REQUEST_TIMEOUT_S = 60.0


def install() -> None:
    """Install the locked Node packages if they are missing."""
    node.install(HERE)


class ReferenceProcess(BaseServerProcess):
    """A process of the reference server, in memory unless `args` name a `--data-dir`."""

    def _command(self, port: int) -> list[str]:
        return [node.NODE, str(_SERVE), str(port), *self.args]

    def _port_in(self, line: str) -> int | None:
        try:
            event = json.loads(line)
        except ValueError:
            return None
        return urlsplit(event["url"]).port if event.get("event") == "listening" else None

    def fail_next(self, stream_url: str, **fault: Any) -> None:
        """Let the next request to a stream fail, by a fault that this server offers."""
        body = json.dumps({"path": urlsplit(stream_url).path, **fault}).encode()
        request = Request(f"{self.url}/_test/inject-error", body)
        with urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
            response.read()
