"""
What stands before the service: who is it, may they, and not too often.

Rule 1: nothing is looked up before all of it is answered, so that a refusal tells nothing of what
there is (§10.2).

Rule 2: without access control and limits this costs one look at `guarded`.
"""

from pathlib import Path
from typing import Final

import structlog

from tailrace.protocol.errors import Refusal
from tailrace.server.guard.access import Access, AccessFileInvalid, admit
from tailrace.server.guard.access.errors import CrossOriginRefused
from tailrace.server.guard.access.principal import ANONYMOUS_ID
from tailrace.server.guard.limits import Limits, LimitsFileInvalid
from tailrace.server.message import Request
from tailrace.server.settings import Settings
from tailrace.server.target import Resource, Target

__all__ = ["Doors"]

_SENDING: Final = ("PUT", "POST")
_CONTENT: Final = (Resource.STREAM, Resource.SNAPSHOT)
_UNLIMITED: Final = (Resource.OWN, Resource.UI)
_TELLING: Final = (
    Resource.BUCKETS, Resource.PATHS, Resource.ABOUT, Resource.METRICS, Resource.BACKUP,
)  # fmt: skip

log = structlog.get_logger("tailrace")


class Doors:
    """Access control and limits of one server, as its settings and their files have them."""

    def __init__(self, settings: Settings) -> None:
        """
        Read the files.

        Raises:
            AccessFileInvalid, LimitsFileInvalid: One cannot be read, or has a mistake in it.
            ProxiesInvalid: `--trusted-proxies` has one.
        """
        self.access = Access(Path(settings.access)) if settings.access else None
        self.limits = Limits.load(Path(settings.limits) if settings.limits else None, settings)
        self.guarded = self.access is not None or bool(settings.limits)
        if self.access is not None:
            self.access.before_verify = self._check_address

    def check(self, request: Request, target: Target) -> None:
        """
        Whether a request may be made at all.

        Raises:
            Refusal: 401, 403, or 503 while keys are being fetched.
        """
        if self.access is None:
            return
        try:
            request.principal = admit(self.access, request, target)
        except Refusal:
            # Whoever guesses at tokens is somebody of that address.
            self.count_refused(request)
            raise

    def count_refused(self, request: Request) -> None:
        """
        A request that is refused before anybody asked how many there were.

        Raises:
            RequestRateExceeded: Too many of its address were.
        """
        self.limits.count_request(self._address(request))

    def check_length(self, request: Request, target: Target) -> None:
        """
        Whether it is plain that a body will be refused that is yet to be sent.

        Raises:
            AppendRateExceeded: There were too many bytes already.
        """
        length = request.headers.get(b"content-length", b"")
        if target.resource in _CONTENT and length.isdigit():
            self.limits.check_append(self.client(request), int(length))

    def admit(self, request: Request, target: Target) -> None:
        """
        The same, and whether it may be made now.

        Raises:
            Refusal: As `check`, or 429.
        """
        self.check(request, target)
        if target.resource in _UNLIMITED or request.method == "OPTIONS":
            # A probe of health that is refused would take the server out of service.
            return
        client = self.client(request)
        self.limits.count_request(client)
        if target.resource in _CONTENT and request.method in _SENDING:
            size = len(request.body) if request.sink is None else request.sink.size
            self.limits.count_append(client, size)

    def _check_address(self, request: Request) -> None:
        """Credentials are about to be looked into, which takes time: not for who guesses a lot."""
        self.limits.check_request(self._address(request))

    def check_origin(self, request: Request, target: Target) -> None:
        """
        Where everybody may do everything, keep other people's pages from asking what there is.

        The protocol is for pages of any origin, and a stream's name can be known to those alone who
        should read it. What lists names, or everything, would tell any page in a browser here.

        Raises:
            CrossOriginRefused: A browser says that it asks for a page of another origin.
        """
        if self.access is not None or target.resource not in _TELLING:
            return
        headers = request.headers
        origin = headers.get(b"origin")
        if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") or (
            origin is not None and origin.partition(b"://")[2] != headers.get(b"host", b"")
        ):
            raise CrossOriginRefused

    def client(self, request: Request) -> str:
        """Who is counted: a principal, or an address where there is none."""
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
        """Read the files anew; one with a mistake in it changes nothing, and the log says so."""
        if self.access is not None:
            try:
                self.access.reload()
            except AccessFileInvalid as error:
                log.error("access is as it was: mend the file, then reload", error=str(error))
        try:
            self.limits.reload()
        except LimitsFileInvalid as error:
            log.error("limits are as they were: mend the file, then reload", error=str(error))

    def close(self) -> None:
        if self.access is not None:
            self.access.close()
