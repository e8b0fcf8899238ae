"""
The checks before a handler: authentication, authorization and rate limits.

Rule 1: all of them come before anything is looked up, so that a refusal does not reveal what is
stored (§10.2).

Rule 2: without access control and limits they cost one test of `guarded`.
"""

from functools import partial
from pathlib import Path
from typing import Final

import structlog

from tailrace.protocol.errors import Refusal
from tailrace.server.guard.access import Access, admit
from tailrace.server.guard.access.errors import CrossOriginRefused
from tailrace.server.guard.access.principal import ANONYMOUS_ID
from tailrace.server.guard.limits import Limits
from tailrace.server.message import Request
from tailrace.server.settings import Settings, SettingsError

__all__ = ["Guard"]

_SENDING: Final = ("PUT", "POST")

log = structlog.get_logger("tailrace")


class Guard:
    """Access control and limits of one server, from its settings and their files."""

    def __init__(self, settings: Settings) -> None:
        """
        Read the files.

        Raises:
            AccessFileInvalid, LimitsFileInvalid: A file cannot be read, or has a mistake.
            ProxiesInvalid: `--trusted-proxies` has a mistake.
        """
        self.access = Access(Path(settings.access)) if settings.access else None
        self.limits = Limits(settings)
        self.guarded = self.access is not None or bool(settings.limits)
        if self.access is not None:
            # Verifying new credentials takes time: check the rate limit of the address first.
            self.access.before_verify = partial(self.count_refused, check_only=True)

    def check(self, request: Request) -> None:
        """
        Authenticate and authorize a request.

        Raises:
            Refusal: 401, 403, or 503 while keys are being fetched.
        """
        if self.access is None:
            return
        try:
            request.principal = admit(self.access, request, request.target)
        except Refusal:
            # Guesses at tokens count towards the rate limit of their address.
            self.count_refused(request)
            raise

    def count_refused(self, request: Request, *, check_only: bool = False) -> None:
        """
        Count a request that was refused before its rate limit was checked, unless `check_only`.

        Raises:
            RequestRateExceeded: Its address sent too many.
        """
        self.limits.count_request(self._address(request), check_only=check_only)

    def check_length(self, request: Request) -> None:
        """
        Refuse a body before it is sent, if the append rate is already exceeded.

        Raises:
            AppendRateExceeded: The client sent too many bytes already.
        """
        length = request.headers.get(b"content-length", b"")
        if request.target.route.content and length.isdigit():
            self.limits.count_append(self.client(request), int(length), check_only=True)

    def admit(self, request: Request) -> None:
        """
        Authenticate and authorize a complete request, and count it.

        Raises:
            Refusal: As `check`, or 429.
        """
        self.check(request)
        route = request.target.route
        if not route.rate_limited or request.method == "OPTIONS":
            return
        client = self.client(request)
        self.limits.count_request(client)
        if route.content and request.method in _SENDING:
            size = len(request.body) if request.sink is None else request.sink.size
            self.limits.count_append(client, size)

    def check_origin(self, request: Request) -> None:
        """
        Without access control, keep pages of other origins from a route that lists what is stored.

        The protocol is open to pages of any origin: a stream is protected by its name, which only
        its readers know. Routes that list names, or copy everything, would reveal them.

        Raises:
            CrossOriginRefused: The request comes from a page of another origin.
        """
        if self.access is not None:
            return
        headers = request.headers
        origin = headers.get(b"origin")
        if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") or (
            origin is not None and origin.partition(b"://")[2] != headers.get(b"host", b"")
        ):
            raise CrossOriginRefused

    def client(self, request: Request) -> str:
        """The id that limits are counted by: the principal, or the address without one."""
        principal = request.principal
        if principal is not None and principal.id != ANONYMOUS_ID:
            return principal.id
        return self._address(request)

    def _address(self, request: Request) -> str:
        proxies = self.limits.proxies
        if not proxies:
            return request.address
        forwarded = request.headers.get(b"x-forwarded-for", b"").decode("latin-1")
        return proxies.client(request.address, forwarded)

    def reload(self) -> None:
        """Read the files again; a file with a mistake changes nothing and is logged."""
        for name, part in (("access", self.access), ("limits", self.limits)):
            try:
                if part is not None:
                    part.reload()
            except SettingsError as error:
                log.error(f"{name} unchanged: correct the file, then reload", error=str(error))

    def close(self) -> None:
        if self.access is not None:
            self.access.close()
