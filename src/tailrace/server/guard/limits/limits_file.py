"""
The limits file: who may do how much (§10.5), in TOML.

    [client]                        each principal, or each address where there is none
    requests_per_s = 100            requests_burst = 200
    append_bytes_per_s = 1_000_000  append_bytes_burst = 5_000_000
    waiters_max = 100               connections_max = 100

    [[exception]]                   the first that matches holds, instead of [client]
    match = "token:k3v9*"           a principal, "*" at the end for any; or an address or network

    [[bucket]]                      the first that matches holds
    match = "chat-*"
    bytes_max = 1_000_000_000       streams_max = 10_000
    messages_per_s = 1000           messages_burst = 5000

Everything may be left out: then there is no such limit.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from tailrace.server.guard.forwarded import Network, parse_network
from tailrace.server.guard.limits.rate import Rate

__all__ = ["NO_LIMITS", "BucketRule", "ClientRule", "LimitsFileInvalid", "Rules", "load_rules"]

_CLIENT_KEYS: Final = (
    "requests_per_s", "requests_burst", "append_bytes_per_s", "append_bytes_burst",
    "waiters_max", "connections_max",
)  # fmt: skip
_BUCKET_KEYS: Final = ("bytes_max", "streams_max", "messages_per_s", "messages_burst")
_NUMBER_MAX: Final = 1 << 53


class LimitsFileInvalid(Exception):
    """The limits file cannot be used; the message says what is wrong where."""


@dataclass(frozen=True, slots=True)
class ClientRule:
    """What one client may do; None is no limit."""

    requests: Rate | None = None
    append_bytes: Rate | None = None
    waiters_max: int | None = None
    connections_max: int | None = None


@dataclass(frozen=True, slots=True)
class BucketRule:
    """What one bucket may hold; None is no limit."""

    bytes_max: int | None = None
    streams_max: int | None = None
    messages: Rate | None = None


@dataclass(frozen=True, slots=True)
class _Match:
    """A name, the beginning of one, or a network."""

    text: str
    network: Network | None = None

    def matches(self, name: str, network: Network | None) -> bool:
        if self.network is not None:
            # The two kinds of networks do not compare.
            return (
                network is not None
                and network.version == self.network.version
                and network.subnet_of(self.network)  # type: ignore[arg-type]
            )
        if self.text.endswith("*"):
            return name.startswith(self.text[:-1])
        return name == self.text


@dataclass(frozen=True, slots=True)
class Rules:
    """What the file says."""

    client: ClientRule = ClientRule()
    exceptions: tuple[tuple[_Match, ClientRule], ...] = ()
    buckets: tuple[tuple[_Match, BucketRule], ...] = ()

    def of_client(self, name: str) -> ClientRule:
        """The rule of a principal, or of an address as it is counted."""
        if not self.exceptions:
            return self.client
        network = _network(name)
        for match, rule in self.exceptions:
            if match.matches(name, network):
                return rule
        return self.client

    def of_bucket(self, name: str) -> BucketRule | None:
        """The rule of a bucket, if it has one."""
        for match, rule in self.buckets:
            if match.matches(name, None):
                return rule
        return None


NO_LIMITS: Final = Rules()


def load_rules(path: Path) -> Rules:
    """
    Read the limits file.

    Raises:
        LimitsFileInvalid: It cannot be read, or says something that means nothing.
    """
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LimitsFileInvalid(f"{path}: {error}") from None
    try:
        _check_keys(content, ("client", "exception", "bucket"), "the file")
        client = _table(content.get("client", {}), "[client]")
        return Rules(
            _client_rule(client, "[client]"),
            tuple(
                (_client_match(entry, place), _client_rule(entry, place, "match"))
                for entry, place in _entries(content, "exception")
            ),
            tuple(
                (_Match(_text(entry, place)), _bucket_rule(entry, place))
                for entry, place in _entries(content, "bucket")
            ),
        )
    except ValueError as error:
        raise LimitsFileInvalid(f"{path}: {error}") from None


def _network(name: str) -> Network | None:
    try:
        return ip_network(name)
    except ValueError:
        return None


def _table(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place} must be a table")
    return value


def _entries(content: Mapping[str, Any], name: str) -> list[tuple[Mapping[str, Any], str]]:
    entries = content.get(name, [])
    if not isinstance(entries, list):
        raise ValueError(f"[{name}] must be written [[{name}]], once for each")
    places = (f"[[{name}]] number {number}" for number in range(1, len(entries) + 1))
    return [(_table(entry, place), place) for entry, place in zip(entries, places, strict=True)]


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for name in table:
        if name not in known:
            raise ValueError(f"{place}: unknown key {name!r}; known: {', '.join(known)}")


def _text(entry: Mapping[str, Any], place: str) -> str:
    text = entry.get("match")
    if not isinstance(text, str) or not text:
        raise ValueError(f"{place}: match is missing: say whom it is for")
    if "*" in text[:-1]:
        raise ValueError(f"{place}: match = {text!r}: '*' may stand at the end only")
    return text


def _client_match(entry: Mapping[str, Any], place: str) -> _Match:
    text = _text(entry, place)
    try:
        return _Match(text, parse_network(text))
    except ValueError:
        pass
    if text != "*" and not text.startswith(("token:", "jwt:")):
        raise ValueError(
            f"{place}: match = {text!r} is neither an address or network nor a principal, "
            "token:… or jwt:…"
        )
    return _Match(text)


def _client_rule(table: Mapping[str, Any], place: str, *more: str) -> ClientRule:
    _check_keys(table, (*_CLIENT_KEYS, *more), place)
    return ClientRule(
        _rate(table, place, "requests"),
        _rate(table, place, "append_bytes"),
        _count(table, place, "waiters_max", low=0),
        _count(table, place, "connections_max"),
    )


def _bucket_rule(table: Mapping[str, Any], place: str) -> BucketRule:
    _check_keys(table, (*_BUCKET_KEYS, "match"), place)
    return BucketRule(
        _count(table, place, "bytes_max", low=0),
        _count(table, place, "streams_max", low=0),
        _rate(table, place, "messages"),
    )


def _rate(table: Mapping[str, Any], place: str, name: str) -> Rate | None:
    burst = _count(table, place, f"{name}_burst")
    per_s = table.get(f"{name}_per_s")
    if per_s is None:
        if burst is not None:
            raise ValueError(f"{place}: {name}_burst means nothing without {name}_per_s")
        return None
    # bool is an int in Python; what is not a number is in no range.
    fits = isinstance(per_s, int | float) and not isinstance(per_s, bool)
    if not fits or not 0.001 <= per_s <= _NUMBER_MAX:
        raise ValueError(f"{place}: {name}_per_s must be a number from 0.001 on, not {per_s!r}")
    # As much at once as comes in a second, unless it is said.
    return Rate.of(per_s, max(1, int(per_s)) if burst is None else burst)


def _count(table: Mapping[str, Any], place: str, name: str, low: int = 1) -> int | None:
    value = table.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _NUMBER_MAX:
        raise ValueError(f"{place}: {name} must be a whole number from {low} on, not {value!r}")
    return value
