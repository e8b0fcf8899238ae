"""
The address of a client: the peer, or the client that a trusted proxy names.

Rule 1: `X-Forwarded-For` is trusted only from a peer of `--trusted-proxies`, since any client
can send it. Each proxy appends the address of its peer, so the list is read from its end: the last
address that is not a trusted proxy is the client. Addresses before it may be forged.

Rule 2: if the header cannot be parsed, the peer is the client.

Rule 3: addresses are normalized. IPv4 inside of IPv6 becomes IPv4; ports, brackets and scopes are
removed. A client is counted by its IPv4 address or by the /64 of its IPv6 address, since one
customer usually has a whole /64.
"""

import re
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias

from tailrace.server.settings import SettingsError

__all__ = ["ProxiesInvalid", "TrustedProxies", "client_key", "parse_address", "parse_network"]

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

FORWARDED_COUNT_MAX: Final = 32
"""At most this many addresses of a header are read, from its end."""
ADDRESS_CHARS_MAX: Final = 64
ADDRESSES_CACHED: Final = 4096
CLIENT_PREFIX_BITS: Final = 64
_HOST_AND_PORT: Final = re.compile(r"\[(?P<bracketed>[^]]*)\](?::[0-9]+)?|(?P<plain>[^:]*):[0-9]+")


class ProxiesInvalid(SettingsError):
    """`--trusted-proxies` has a value that is neither an address nor a network."""

    message = "--trusted-proxies: {value!r} is neither an address nor a network ({reason})"
    value: str


def parse_address(text: str) -> Address | None:
    """Parse an address, with or without a port or brackets; None if it is invalid."""
    text = text.strip().strip('"')
    if len(text) > ADDRESS_CHARS_MAX:
        return None
    if match := _HOST_AND_PORT.fullmatch(text):
        text = match["bracketed"] or match["plain"] or ""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def parse_network(text: str) -> Network:
    """
    Parse a network, or an address as a network of one.

    Raises:
        ValueError: It is neither.
    """
    network = ip_network(text.strip(), strict=False)
    if isinstance(network, IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - 96))
    return network


@lru_cache(ADDRESSES_CACHED)
def client_key(client: str) -> str:
    """The key that a client is counted by: a normalized address or network, or a principal."""
    address = parse_address(client)
    if isinstance(address, IPv6Address):
        rest = 128 - CLIENT_PREFIX_BITS
        return f"{IPv6Address(int(address) >> rest << rest)}/{CLIENT_PREFIX_BITS}"
    return client if address is None else str(address)


class TrustedProxies:
    """The proxies whose X-Forwarded-For is trusted."""

    def __init__(self, text: str = "") -> None:
        """
        Parse addresses and networks that are separated by commas.

        Raises:
            ProxiesInvalid: One of them is neither.
        """
        self._networks: list[Network] = []
        self._is_trusted = lru_cache(ADDRESSES_CACHED)(self._look_up)
        for part in filter(None, map(str.strip, text.split(","))):
            try:
                self._networks.append(parse_network(part))
            except ValueError as error:
                raise ProxiesInvalid(str(error), part) from None

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        return bool(self._networks) and self._is_trusted(address)

    def _look_up(self, text: str) -> bool:
        address = parse_address(text)
        return address is not None and any(address in network for network in self._networks)

    def client(self, peer: str, forwarded: str) -> str:
        """The address of a request's client; `forwarded` is its X-Forwarded-For, or empty."""
        if not forwarded or peer not in self:
            return peer
        for text in reversed(forwarded.rsplit(",", FORWARDED_COUNT_MAX)[-FORWARDED_COUNT_MAX:]):
            address = parse_address(text)
            if address is None:
                return peer
            if str(address) not in self:
                return str(address)
        return peer
