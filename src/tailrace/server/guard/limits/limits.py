"""
The limits of one server: request and append rates of clients, waiting readers, connections.

A client is a principal, or an address where there is none. Rates and the maxima of single clients
come from the limits file. Waiting readers and connections are shared fairly also without a file,
see `fair_share`.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tailrace.server.guard.forwarded import TrustedProxies, client_key
from tailrace.server.guard.limits.accounts import Accounts
from tailrace.server.guard.limits.errors import (
    AppendRateExceeded,
    ClientWaitersExceeded,
    RequestRateExceeded,
    TooManyWaiters,
)
from tailrace.server.guard.limits.fair_share import FairShare
from tailrace.server.guard.limits.limits_file import NO_LIMITS, ClientRule, load_rules
from tailrace.server.guard.limits.quotas import Quotas
from tailrace.server.guard.limits.token_bucket import retry_after_s
from tailrace.server.settings import Settings

__all__ = ["Limits"]

_WAITER_RETRY_S: Final = 1


class _Account:
    """The token buckets of a client; None means no limit."""

    __slots__ = ("append_bytes", "requests")

    def __init__(self, rule: ClientRule) -> None:
        self.requests = rule.token_bucket("requests")
        self.append_bytes = rule.token_bucket("append_bytes")

    def is_full(self, now: int) -> bool:
        buckets = (self.requests, self.append_bytes)
        return all(bucket is None or bucket.full_at <= now for bucket in buckets)


class Limits:
    """Counts what clients do, and rejects what exceeds a limit."""

    def __init__(self, settings: Settings, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """
        Read the limits file, if there is one.

        Raises:
            LimitsFileInvalid: The file cannot be used.
            ProxiesInvalid: `--trusted-proxies` is invalid.
        """
        self.proxies = TrustedProxies(settings.trusted_proxies)
        self.waiters = FairShare(settings.waiters_max)
        self.connections = FairShare(settings.connections_max)
        self._path = Path(settings.limits) if settings.limits else None
        self._rules = NO_LIMITS if self._path is None else load_rules(self._path)
        self.quotas = Quotas(self._rules, clock)
        self._clock = clock
        self._accounts = Accounts(lambda name: _Account(self._rules.for_client(name)), clock)

    def reload(self) -> None:
        """
        Read the file again. Resets all rate-limit counters.

        Raises:
            LimitsFileInvalid: The file cannot be used; the limits are unchanged.
        """
        if self._path is None:
            return
        self._rules = load_rules(self._path)
        self._accounts.clear()
        self.quotas.use(self._rules)

    # -- rates -------------------------------------------------------------------------------

    def count_request(self, client: str, *, check_only: bool = False) -> None:
        """
        Count a request, unless `check_only`.

        Raises:
            RequestRateExceeded: The client exceeds its rate.
        """
        account = self._accounts.get(client) or self._accounts.get_or_add(client_key(client))
        if (bucket := account.requests) is None:
            return
        if wait_ns := bucket.take(1, self._clock(), check_only=check_only):
            raise RequestRateExceeded(retry_after_s(wait_ns))

    def count_append(self, client: str, size: int, *, check_only: bool = False) -> None:
        """
        Count the bytes of an append or a snapshot before they are stored, unless `check_only`.

        Raises:
            AppendRateExceeded: The client exceeds its rate.
        """
        account = self._accounts.get(client) or self._accounts.get_or_add(client_key(client))
        if (bucket := account.append_bytes) is None or not size:
            return
        if wait_ns := bucket.take(size, self._clock(), check_only=check_only):
            raise AppendRateExceeded(retry_after_s(wait_ns))

    # -- waiting readers and connections -----------------------------------------------------

    def join(self, client: str) -> None:
        """
        Count a reader that starts to wait, by long-poll or SSE; `leave` uncounts it.

        Raises:
            ClientWaitersExceeded: The client has reached the maximum of the limits file.
            TooManyWaiters: The client has its share, or the server has reached its maximum.
        """
        name = client_key(client)
        own_max = self._rules.for_client(name).waiters_max
        if own_max is not None and self.waiters.held(name) >= own_max:
            raise ClientWaitersExceeded(_WAITER_RETRY_S)
        if not self.waiters.join(name):
            raise TooManyWaiters

    def leave(self, client: str) -> None:
        """A reader stops waiting."""
        self.waiters.leave(client_key(client))

    def connect(self, address: str) -> bool:
        """Count a connection from an address; false if it must be rejected."""
        if address in self.proxies:
            # A proxy opens the connections of all its clients; their requests are counted apart.
            return self.connections.join(address, exempt=True)
        name = client_key(address)
        return self.connections.join(name, self._rules.for_client(name).connections_max)

    def disconnect(self, address: str) -> None:
        """A counted connection is closed."""
        self.connections.leave(address if address in self.proxies else client_key(address))
