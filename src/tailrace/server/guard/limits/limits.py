"""
The limits of one server: what each client may ask for, and who may wait or connect.

A client is a principal, or an address where there is none. Limits of rates and of a client's own
come from the limits file; the places for readers that wait and for connections are shared fairly
without one, see `share`.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tailrace.server.guard.forwarded import TrustedProxies, counted
from tailrace.server.guard.limits.accounts import Known
from tailrace.server.guard.limits.errors import (
    AppendRateExceeded,
    ClientWaitersExceeded,
    RequestRateExceeded,
    TooManyWaiters,
)
from tailrace.server.guard.limits.fair_share import Denial, Share
from tailrace.server.guard.limits.limits_file import NO_LIMITS, ClientRule, Rules, load_rules
from tailrace.server.guard.limits.quotas import Quotas
from tailrace.server.guard.limits.rate import retry_after_s
from tailrace.server.settings import Settings

__all__ = ["Limits"]

_WAITER_RETRY_S: Final = 1


class _Client:
    """What is remembered of a client: its rule, and when its buckets will be full again."""

    __slots__ = ("append_full_at", "requests_full_at", "rule")

    def __init__(self, rule: ClientRule) -> None:
        self.rule = rule
        self.requests_full_at = 0
        self.append_full_at = 0

    def is_full(self, now: int) -> bool:
        return self.requests_full_at <= now and self.append_full_at <= now


class Limits:
    """Who may do how much, now."""

    def __init__(
        self,
        rules: Rules,
        *,
        waiters_max: int,
        connections_max: int,
        proxies: TrustedProxies | None = None,
        path: Path | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.proxies = proxies or TrustedProxies()
        self.waiters = Share(waiters_max)
        self.connections = Share(connections_max)
        self.quotas = Quotas(rules, clock)
        self._rules = rules
        self._path = path
        self._clock = clock
        self._clients: Known[_Client] = Known()

    @classmethod
    def load(cls, path: Path | None, settings: Settings) -> "Limits":
        """
        Of the limits file, if there is one, and of the settings.

        Raises:
            LimitsFileInvalid: The file cannot be used.
            ProxiesInvalid: `--trusted-proxies` cannot.
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
        Read the file again. Who is in debt by the old rules starts anew by the new ones.

        Raises:
            LimitsFileInvalid: It cannot be used, and the limits stay as they were.
        """
        if self._path is None:
            return
        self._rules = load_rules(self._path)
        self._clients.clear()
        self.quotas.use(self._rules)

    # -- rates -------------------------------------------------------------------------------

    def request(self, client: str) -> None:
        """
        Count a request.

        Raises:
            RequestRateExceeded: There were too many.
        """
        account = self._clients.get(client) or self._account(client)
        if (rate := account.rule.requests) is None:
            return
        account.requests_full_at, wait_ns = rate.take(account.requests_full_at, 1, self._clock())
        if wait_ns:
            raise RequestRateExceeded(retry_after_s(wait_ns))

    def check_request(self, client: str) -> None:
        """
        Whether a request would be too many now; nothing is counted.

        Raises:
            RequestRateExceeded: It would.
        """
        account = self._clients.get(client) or self._account(client)
        if (rate := account.rule.requests) is not None:
            _, wait_ns = rate.take(account.requests_full_at, 1, self._clock())
            if wait_ns:
                raise RequestRateExceeded(retry_after_s(wait_ns))

    def appended(self, client: str, count: int) -> None:
        """
        Count bytes that are about to be appended, of content or of a snapshot.

        Raises:
            AppendRateExceeded: There were too many.
        """
        account = self._clients.get(client) or self._account(client)
        if (rate := account.rule.append_bytes) is None or not count:
            return
        account.append_full_at, wait_ns = rate.take(account.append_full_at, count, self._clock())
        if wait_ns:
            raise AppendRateExceeded(retry_after_s(wait_ns))

    def check_append(self, client: str, count: int) -> None:
        """
        Whether so many bytes could be appended now, before they are sent; nothing is counted.

        Raises:
            AppendRateExceeded: They could not.
        """
        account = self._clients.get(client) or self._account(client)
        if (rate := account.rule.append_bytes) is not None and count:
            _, wait_ns = rate.take(account.append_full_at, count, self._clock())
            if wait_ns:
                raise AppendRateExceeded(retry_after_s(wait_ns))

    def _account(self, client: str) -> _Client:
        """Of somebody who is not known, or by another spelling of the address."""
        name = counted(client)
        account = self._clients.get(name)
        if account is None:
            account = _Client(self._rules.of_client(name))
            self._clients.add(name, account, self._clock())
        return account

    # -- places ------------------------------------------------------------------------------

    def join(self, client: str) -> None:
        """
        Count a reader that waits from now on, by long-poll or SSE; `leave` takes it out again.

        Raises:
            ClientWaitersExceeded: The client has as many as the limits file lets it have.
            TooManyWaiters: There are too many, of this client or in all.
        """
        name = counted(client)
        denial = self.waiters.join(name, self._rules.of_client(name).waiters_max)
        if denial is Denial.OWN:
            raise ClientWaitersExceeded(_WAITER_RETRY_S)
        if denial is not None:
            raise TooManyWaiters

    def leave(self, client: str) -> None:
        """A reader waits no more."""
        self.waiters.leave(counted(client))

    def connect(self, address: str) -> bool:
        """Count a connection from an address; false if it is one too many."""
        if address in self.proxies:
            # It has the connections of all its clients, who are told apart by request.
            return self.connections.join(address, exempt=True) is None
        name = counted(address)
        return self.connections.join(name, self._rules.of_client(name).connections_max) is None

    def disconnect(self, address: str) -> None:
        """A connection that was counted is gone."""
        self.connections.leave(address if address in self.proxies else counted(address))
