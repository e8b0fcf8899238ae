"""
Where webhooks may go: a client chooses their URL, and the server must not reach for it what only
the server can reach (server-side request forgery).

Rule 1: `https` only, except to `localhost` and 127.0.0.x.

Rule 2: every address is checked, literal or resolved, when a connection is made. The connection
goes to the checked address, so that a name that resolves differently a second time gains nothing.

Rule 3: an IPv6 address that carries an IPv4 address is as good as that one.

Rule 4: an IPv4 address has one spelling. Resolvers know others, such as `127.1` and `0x7f000001`.

    networks     reaches
    public       global addresses
    loopback     also localhost and 127.0.0.x, by http as well (the protocol's rule)
    private      also private and loopback addresses of any host, by http as well

Link-local addresses and the metadata services of clouds are never reached.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from tailrace.server.subscriptions.errors import WebhookUrlRejected

__all__ = ["URL_CHARS_MAX", "Networks", "check_address", "check_url"]

Networks: TypeAlias = Literal["public", "loopback", "private"]

URL_CHARS_MAX: Final = 2048

_Address: TypeAlias = IPv4Address | IPv6Address
_LOCAL: Final = IPv4Network("127.0.0.0/24")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = IPv6Network("::/96")
_PRIVATE: Final = tuple(
    map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
)
_SITE_LOCAL: Final = IPv6Network("fec0::/10")
_UNIQUE_LOCAL: Final = IPv6Network("fc00::/7")
_METADATA: Final = (
    IPv4Network("169.254.0.0/16"),
    IPv4Network("100.100.100.200/32"),
    IPv6Network("fd00:ec2::254/128"),
)
_NUMERIC: Final = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE)
"""No top-level domain is a number."""


def check_url(url: str, networks: Networks) -> None:
    """
    Check a URL as far as this is possible without resolving its host.

    Raises:
        WebhookUrlRejected: No webhook may be sent there.
    """
    parts = _parse(url)
    host = parts.hostname or ""
    local = networks != "public" and is_local(host)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and (local or networks == "private")
    ):
        raise WebhookUrlRejected("must be https://… (http:// only to localhost and 127.0.0.x)")
    if (address := _literal(host)) is not None:
        check_address(host, str(address), networks)
    elif _NUMERIC.fullmatch(host):
        raise WebhookUrlRejected("must have an IPv4 address as four decimal numbers, or a name")


def is_local(host: str) -> bool:
    """Whether a host is `localhost` or 127.0.0.x by its name."""
    address = _literal(host)
    return host.lower() == "localhost" or (isinstance(address, IPv4Address) and address in _LOCAL)


def check_address(host: str, text: str, networks: Networks) -> None:
    """
    Check an address of a host before a connection is made to it.

    Raises:
        WebhookUrlRejected: It must not be reached.
    """
    address = _literal(text)
    if address is None or not _may_reach(host, address, networks):
        # Not the address: it may be a secret of the internal DNS.
        raise WebhookUrlRejected(
            f"{host[:253]} has an address that this server does not send webhooks to: private, "
            "loopback, link-local and reserved ones are refused (--webhook-networks)"
        )


def _may_reach(host: str, address: _Address, networks: Networks) -> bool:
    embedded = _embedded(address)
    if embedded is not None:
        # A translator would forward it to that address.
        return address not in _COMPATIBLE and _may_reach("", embedded, networks)
    if address.is_multicast or address.is_link_local or address.is_unspecified:
        return False
    if address in _SITE_LOCAL or any(address in network for network in _METADATA):
        return False
    if address.is_loopback:
        return networks == "private" or (networks == "loopback" and is_local(host))
    if _is_private(address):
        return networks == "private"
    # `is_global` is false for everything else that is reserved.
    return address.is_global and not address.is_reserved


def _embedded(address: _Address) -> IPv4Address | None:
    """The IPv4 address inside an IPv6 address."""
    if isinstance(address, IPv4Address) or address.is_loopback or address.is_unspecified:
        return None
    if address in _NAT64 or address in _COMPATIBLE:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]


def _is_private(address: _Address) -> bool:
    if isinstance(address, IPv4Address):
        return any(address in network for network in _PRIVATE)
    return address in _UNIQUE_LOCAL


def _literal(host: str) -> _Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _parse(url: str) -> SplitResult:
    if len(url) > URL_CHARS_MAX:
        raise WebhookUrlRejected(f"may have {URL_CHARS_MAX} characters at most")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise WebhookUrlRejected("must be printable ASCII without spaces and backslashes")
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise WebhookUrlRejected("is not a URL such as https://example.org/hook")
    if "@" in parts.netloc or parts.fragment:
        raise WebhookUrlRejected("must have neither a user nor a fragment")
    return parts
