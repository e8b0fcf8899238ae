"""
Who a client is, by its address: the peer, or whom a trusted proxy names.

Rule 1: `X-Forwarded-For` is believed only of a peer that `--trusted-proxies` has, since anybody can
send it. Each proxy adds whom it spoke with at the end, so the list is read from there: the last
address that is not a trusted proxy is the client. What stands before it may be invented.

Rule 2: what cannot be read counts as nothing, and the peer is the client.

Rule 3: addresses have one form. IPv4 inside of IPv6 is IPv4; ports, brackets and scopes are left
out. A client is counted by its IPv4 address or by the /64 of its IPv6 address, of which one
customer has all.
"""

from collections.abc import Iterable
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

__all__ = ["ProxiesInvalid", "TrustedProxies", "counted", "parse_address", "parse_network"]

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

FORWARDED_COUNT_MAX: Final = 32
"""So many addresses of a header are looked at, from its end."""
ADDRESS_CHARS_MAX: Final = 64
ADDRESSES_KEPT: Final = 4096
"""So many are remembered in their one form: to make it takes longer than to look it up."""
CLIENT_PREFIX_BITS: Final = 64


class ProxiesInvalid(ValueError):
    """`--trusted-proxies` has something that is neither an address nor a network."""


def parse_address(text: str) -> Address | None:
    """An address, with or without a port or brackets; nothing if it is none."""
    text = text.strip().strip('"')
    if len(text) > ADDRESS_CHARS_MAX:
        return None
    if text.startswith("["):
        text, bracket, port = text[1:].partition("]")
        if not bracket or not _is_port(port):
            return None
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        if not _is_port(":" + port):
            return None
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and text[1:].isascii() and text[1:].isdecimal())


def parse_network(text: str) -> Network:
    """
    A network, or an address as the network of itself.

    Raises:
        ValueError: It is neither.
    """
    network = ip_network(text.strip(), strict=False)
    if isinstance(network, IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - 96))
    return network


@lru_cache(ADDRESSES_KEPT)
def counted(client: str) -> str:
    """What an address is counted under; whatever is no address, such as a principal, stays."""
    address = parse_address(client)
    if isinstance(address, IPv6Address):
        rest = 128 - CLIENT_PREFIX_BITS
        return f"{IPv6Address(int(address) >> rest << rest)}/{CLIENT_PREFIX_BITS}"
    return client if address is None else str(address)


class TrustedProxies:
    """Whose word about their clients is taken."""

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        self._networks = tuple(networks)
        self._trusts = lru_cache(ADDRESSES_KEPT)(self._look_up)

    @classmethod
    def parse(cls, text: str) -> "TrustedProxies":
        """
        From addresses and networks with commas between them.

        Raises:
            ProxiesInvalid: One of them is neither.
        """
        networks = []
        for part in filter(None, map(str.strip, text.split(","))):
            try:
                networks.append(parse_network(part))
            except ValueError as error:
                raise ProxiesInvalid(
                    f"--trusted-proxies: {part!r} is neither an address nor a network ({error})"
                ) from None
        return cls(networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        return bool(self._networks) and self._trusts(address)

    def _look_up(self, text: str) -> bool:
        address = parse_address(text)
        return address is not None and any(address in network for network in self._networks)

    def client(self, peer: str, forwarded: str) -> str:
        """The address of whoever sent a request; `forwarded` is its X-Forwarded-For, or empty."""
        if not forwarded or peer not in self:
            return peer
        for text in reversed(forwarded.rsplit(",", FORWARDED_COUNT_MAX)[-FORWARDED_COUNT_MAX:]):
            address = parse_address(text)
            if address is None:
                return peer
            if str(address) not in self:
                return str(address)
        return peer
