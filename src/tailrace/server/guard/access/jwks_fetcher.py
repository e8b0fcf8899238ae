"""
Keys of an address.

Rule 1: a thread fetches them, and nobody who asks for a key waits for it. They are fetched at once,
every five minutes, and when a token names a key that is not there, but then not more often than
every ten seconds. Until then that token is told to come again.

Rule 2: a fetch that fails, or brings nothing usable, leaves the keys that there were, and is tried
again after ten seconds.

Rule 3: the address is what the operator trusts: it is not left for another, whatever it answers.
"""

import threading
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, Final

import structlog

from tailrace.server.guard.access.errors import CredentialsRefused, KeysNotReady
from tailrace.server.guard.access.jwks import UNKNOWN_KEY, Key, KeySet, KeysInvalid, parse_keys

__all__ = ["FETCH_S_MAX", "JWKS_BYTES_MAX", "REFRESH_S", "REFRESH_S_MIN", "FetchedKeys", "fetch"]

JWKS_BYTES_MAX: Final = 1 << 20
REFRESH_S: Final = 300.0
REFRESH_S_MIN: Final = 10.0
FETCH_S_MAX: Final = 10.0
_ASKED_COUNT_MAX: Final = 256

log = structlog.get_logger("tailrace")


class FetchedKeys:
    """The keys of an address, as of the last time that they could be fetched."""

    def __init__(self, url: str, changed: Callable[[], None]) -> None:
        self.url = url
        self._changed = changed
        self._keys: KeySet | None = None
        # Which keys tokens asked for that are not there, and when.
        self._asked: dict[str, float] = {}
        self._fetched_at = float("-inf")
        self._wake = threading.Condition()
        self._wanted = self._closed = False
        threading.Thread(target=self._run, name="tailrace-jwks", daemon=True).start()

    @property
    def current(self) -> KeySet | None:
        return self._keys

    def find(self, kid: str | None, algorithm: str) -> Key:
        """
        The key that a token names.

        Raises:
            CredentialsRefused: There is none.
            KeysNotReady: There is none yet; it is being looked for.
        """
        # In this order: the thread writes them in the other one.
        fetched_at = self._fetched_at
        keys = self._keys
        if keys is None:
            raise KeysNotReady
        key = keys.find(kid, algorithm)
        if key is not None:
            return key
        if kid is None or self._looked_for(kid, fetched_at):
            raise CredentialsRefused(UNKNOWN_KEY)
        raise KeysNotReady

    def refresh(self) -> None:
        """Fetch soon."""
        with self._wake:
            self._wanted = True
            self._wake.notify()

    def close(self) -> None:
        """Fetch no more. A fetch that is under way comes to nothing."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _looked_for(self, kid: str, fetched_at: float) -> bool:
        """Whether keys were just fetched, after this one was asked for; asks for it otherwise."""
        now = time.monotonic()
        asked = self._asked.get(kid)
        if asked is not None and asked < fetched_at and now < fetched_at + REFRESH_S_MIN:
            return True
        if asked is None or asked < fetched_at:
            if len(self._asked) >= _ASKED_COUNT_MAX:
                self._asked.pop(next(iter(self._asked)))
            self._asked.pop(kid, None)
            self._asked[kid] = now
            self.refresh()
        return False

    def _run(self) -> None:
        while True:
            is_fetched = self._fetch(time.monotonic())
            with self._wake:
                self._wake.wait_for(lambda: self._closed, REFRESH_S_MIN)
                if is_fetched:
                    rest_s = max(0.0, REFRESH_S - REFRESH_S_MIN)
                    self._wake.wait_for(lambda: self._closed or self._wanted, rest_s)
                self._wanted = False
                if self._closed:
                    return

    def _fetch(self, started: float) -> bool:
        try:
            keys = parse_keys(fetch(self.url))
        except (OSError, ValueError, HTTPException, KeysInvalid) as error:
            log.error("keys could not be fetched: those from before stay", error=str(error)[:200])
            return False
        except Exception:
            # This thread must outlive whatever comes from there.
            log.exception("keys could not be fetched: those from before stay")
            return False
        before, self._keys = self._keys, keys
        self._fetched_at = started
        if before is None or before.thumbprints != keys.thumbprints:
            log.info("keys of JWTs are new", count=len(keys.keys))
            if before is not None and not self._closed:
                self._changed()
        return True


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The address is what the operator trusts, and not where it may point to."""

    def redirect_request(self, *args: Any, **extra: Any) -> None:
        return None


def fetch(url: str) -> bytes:
    """
    What lies at an address.

    Raises:
        OSError: It cannot be had, or not in time.
        ValueError: It is too large.
    """
    deadline = time.monotonic() + FETCH_S_MAX
    # Not for http://, which is allowed because it stays on this machine.
    proxies = {name: at for name, at in urllib.request.getproxies().items() if name == "https"}
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler(proxies))
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with opener.open(request, timeout=FETCH_S_MAX) as response:
        pieces, size = [], 0
        while piece := response.read1(65_536):
            size += len(piece)
            if size > JWKS_BYTES_MAX:
                raise ValueError(f"the JWKS has more than {JWKS_BYTES_MAX} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError("the JWKS took too long")
            pieces.append(piece)
    return b"".join(pieces)
