"""
The limits file (§10.5), in TOML.

    [client]                        each principal, or each address where there is none
    requests_per_s = 100            requests_burst = 200
    append_bytes_per_s = 1_000_000  append_bytes_burst = 5_000_000
    waiters_max = 100               connections_max = 100

    [[exception]]                   the first that matches applies instead of [client]
    match = "token:k3v9*"           a principal, or its beginning and "*"; an address; a network

    [[bucket]]                      the first that matches applies
    match = "chat-*"
    bytes_max = 1_000_000_000       streams_max = 10_000
    messages_per_s = 1000           messages_burst = 5000

Every key but `match` is optional; without it there is no such limit.
"""

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from tailrace.server.config import convert
from tailrace.server.guard.forwarded import Network, parse_network
from tailrace.server.guard.limits.token_bucket import TokenBucket
from tailrace.server.settings import SettingsError

__all__ = [
    "NO_LIMITS", "BucketRule", "ClientRule", "LimitRules", "LimitsFileInvalid", "load_rules",
]  # fmt: skip

_NUMBER_MAX: Final = 1 << 53
_PerSecond: TypeAlias = Annotated[float, Meta(ge=0.001, le=_NUMBER_MAX)]
_Positive: TypeAlias = Annotated[int, Meta(ge=1, le=_NUMBER_MAX)]
_Natural: TypeAlias = Annotated[int, Meta(ge=0, le=_NUMBER_MAX)]


class LimitsFileInvalid(SettingsError):
    """The limits file cannot be used; the text names the key and says why."""


class _Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""

    def token_bucket(self, name: str) -> TokenBucket | None:
        """A new token bucket for the rate `name`, if the rule limits that."""
        per_s = getattr(self, f"{name}_per_s")
        return None if per_s is None else TokenBucket(per_s, getattr(self, f"{name}_burst"))

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name.endswith("_burst") and getattr(self, name) is not None:
                rate = name.removesuffix("burst") + "per_s"
                if getattr(self, rate) is None:
                    raise ValueError(f"{name} has no effect without {rate}")
        match = getattr(self, "match", "*")
        if not match:
            raise ValueError("match is empty: name a client or bucket")
        if "*" in match[:-1]:
            raise ValueError(f"match = {match!r}: '*' is only allowed at the end")


class ClientRule(_Rule, frozen=True, kw_only=True):
    """The limits of one client; None means no limit."""

    requests_per_s: _PerSecond | None = None
    requests_burst: _Positive | None = None
    append_bytes_per_s: _PerSecond | None = None
    append_bytes_burst: _Positive | None = None
    waiters_max: _Natural | None = None
    connections_max: _Positive | None = None


class ClientException(ClientRule, frozen=True, kw_only=True):
    """The limits of the clients that match."""

    match: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            _network(self.match) is None
            and self.match != "*"
            and not self.match.startswith(("token:", "jwt:"))
        ):
            raise ValueError(
                f"match = {self.match!r} is neither an address or network nor a principal, "
                "token:… or jwt:…"
            )


class BucketRule(_Rule, frozen=True, kw_only=True):
    """The quotas of one bucket; None means no limit."""

    match: str
    bytes_max: _Natural | None = None
    streams_max: _Natural | None = None
    messages_per_s: _PerSecond | None = None
    messages_burst: _Positive | None = None


class LimitRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file."""

    client: ClientRule = ClientRule()
    exception: tuple[ClientException, ...] = ()
    bucket: tuple[BucketRule, ...] = ()

    def for_client(self, name: str) -> ClientRule:
        """The rule of a principal, or of an address in the form of `client_key`."""
        if self.exception:
            network = _network(name)
            for rule in self.exception:
                if _matches(rule.match, name) or _contains(_network(rule.match), network):
                    return rule
        return self.client

    def for_bucket(self, name: str) -> BucketRule | None:
        """The rule of a bucket, if it has one."""
        return next((rule for rule in self.bucket if _matches(rule.match, name)), None)


NO_LIMITS: Final = LimitRules()


def load_rules(path: Path) -> LimitRules:
    """
    Read the limits file.

    Raises:
        LimitsFileInvalid: It cannot be read, or a key or value is invalid.
    """
    try:
        return convert(tomllib.loads(path.read_text()), LimitRules)
    except (OSError, ValueError) as error:
        raise LimitsFileInvalid(f"{path}: {error}") from None


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _contains(outer: Network | None, inner: Network | None) -> bool:
    # Networks of different versions do not compare.
    return (
        outer is not None
        and inner is not None
        and outer.version == inner.version
        and inner.subnet_of(outer)  # type: ignore[arg-type]
    )


@lru_cache(4096)
def _network(text: str) -> Network | None:
    try:
        return parse_network(text)
    except ValueError:
        return None
