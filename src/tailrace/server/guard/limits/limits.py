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
from tailrace.server.guard.limits.fair_share import Denial, FairShare
from tailrace.server.guard.limits.limits_file import (
    NO_LIMITS,
    ClientRule,
    LimitRules,
    load_rules,
    rate_of,
)
from tailrace.server.guard.limits.quotas import Quotas
from tailrace.server.guard.limits.rate import retry_after_s
from tailrace.server.settings import Settings

__all__ = ["Limits"]

_WAITER_RETRY_S: Final = 1


class _Account:
    """A client's rates, and when its token buckets will be full again."""

    __slots__ = ("append_bytes", "append_full_at", "requests", "requests_full_at")

    def __init__(self, rule: ClientRule) -> None:
        self.requests = rate_of(rule.requests_per_s, rule.requests_burst)
        self.requests_full_at = 0
        self.append_bytes = rate_of(rule.append_bytes_per_s, rule.append_bytes_burst)
        self.append_full_at = 0

    def is_full(self, now: int) -> bool:
        return self.requests_full_at <= now and self.append_full_at <= now


class Limits:
    """Counts what clients do, and rejects what exceeds a limit."""

    def __init__(
        self,
        rules: LimitRules,
        *,
        waiters_max: int,
        connections_max: int,
        proxies: TrustedProxies | None = None,
        path: Path | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.proxies = proxies or TrustedProxies()
        self.waiters = FairShare(waiters_max)
        self.connections = FairShare(connections_max)
        self.quotas = Quotas(rules, clock)
        self._rules = rules
        self._path = path
        self._clock = clock
        self._accounts: Accounts[_Account] = Accounts()

    @classmethod
    def load(cls, path: Path | None, settings: Settings) -> "Limits":
        """
        Read the limits file, if there is one.

        Raises:
            LimitsFileInvalid: The file cannot be used.
            ProxiesInvalid: `--trusted-proxies` is invalid.
        """
        return cls(
            NO_LIMITS if path is None else load_rules(path),
            waiters_max=settings.waiters_max,
            connections_max=settings.connections_max,
            proxies=TrustedProxies.parse(settings.trusted_proxies),
            path=path,
        )

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

    def count_request(self, client: str) -> None:
        """
        Count a request.

        Raises:
            RequestRateExceeded: The client exceeds its rate.
        """
        account = self._accounts.get(client) or self._account(client)
        if (rate := account.requests) is None:
            return
        account.requests_full_at, wait_ns = rate.take(account.requests_full_at, 1, self._clock())
        if wait_ns:
            raise RequestRateExceeded(retry_after_s(wait_ns))

    def count_append(self, client: str, size: int) -> None:
        """
        Count the bytes of an append or a snapshot, before they are stored.

        Raises:
            AppendRateExceeded: The client exceeds its rate.
        """
        account = self._accounts.get(client) or self._account(client)
        if (rate := account.append_bytes) is None or not size:
            return
        account.append_full_at, wait_ns = rate.take(account.append_full_at, size, self._clock())
        if wait_ns:
            raise AppendRateExceeded(retry_after_s(wait_ns))

    def check_request(self, client: str) -> None:
        """As `count_request`, without counting."""
        account = self._account(client)
        full_at = account.requests_full_at
        self.count_request(client)
        account.requests_full_at = full_at

    def check_append(self, client: str, size: int) -> None:
        """As `count_append`, without counting."""
        account = self._account(client)
        full_at = account.append_full_at
        self.count_append(client, size)
        account.append_full_at = full_at

    def _account(self, client: str) -> _Account:
        name = client_key(client)
        account = self._accounts.get(name)
        if account is None:
            account = _Account(self._rules.for_client(name))
            self._accounts.add(name, account, self._clock())
        return account

    # -- waiting readers and connections -----------------------------------------------------

    def join(self, client: str) -> None:
        """
        Count a reader that starts to wait, by long-poll or SSE; `leave` uncounts it.

        Raises:
            ClientWaitersExceeded: The client has reached the maximum of the limits file.
            TooManyWaiters: The client has its share, or the server has reached its maximum.
        """
        name = client_key(client)
        denial = self.waiters.join(name, self._rules.for_client(name).waiters_max)
        if denial is Denial.OWN:
            raise ClientWaitersExceeded(_WAITER_RETRY_S)
        if denial is not None:
            raise TooManyWaiters

    def leave(self, client: str) -> None:
        """A reader stops waiting."""
        self.waiters.leave(client_key(client))

    def connect(self, address: str) -> bool:
        """Count a connection from an address; false if it must be rejected."""
        if address in self.proxies:
            # A proxy opens the connections of all its clients; their requests are counted apart.
            return self.connections.join(address, exempt=True) is None
        name = client_key(address)
        return self.connections.join(name, self._rules.for_client(name).connections_max) is None

    def disconnect(self, address: str) -> None:
        """A counted connection is closed."""
        self.connections.leave(address if address in self.proxies else client_key(address))
