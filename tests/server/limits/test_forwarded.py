"""The address of a client: the peer, or the one that a trusted proxy names; normalized."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.server.guard.forwarded import (
    FORWARDED_COUNT_MAX,
    ProxiesInvalid,
    TrustedProxies,
    client_key,
    parse_address,
    parse_network,
)

PROXIES = TrustedProxies("10.0.0.0/8, 192.0.2.7,2001:db8:ffff::/48")
PEER = "10.1.2.3"
OUTSIDE = st.one_of(
    st.ip_addresses(network="203.0.113.0/24"), st.ip_addresses(network="2001:db8:1::/48")
).map(str)
INSIDE = st.one_of(
    st.ip_addresses(network="10.0.0.0/8"), st.ip_addresses(network="2001:db8:ffff::/48")
).map(str)
ANYTHING = st.text(st.characters(codec="latin-1"), max_size=80)


def spelled(address: str, how: int) -> str:
    """One of the spellings that proxies use."""
    if ":" in address:
        return [address, f"[{address}]", f"[{address}]:4711", f' "[{address}]:4711"'][how]
    return [address, f"{address}:4711", f"::ffff:{address}", f"[::ffff:{address}]:80"][how]


@given(peer=OUTSIDE, header=ANYTHING)
def test_the_header_of_an_untrusted_peer_is_ignored(peer: str, header: str) -> None:
    assert PROXIES.client(peer, header) == peer
    assert TrustedProxies().client(peer, header) == peer


@given(forged=ANYTHING, client=OUTSIDE, behind=st.lists(INSIDE, max_size=5), how=st.integers(0, 3))
def test_the_last_address_that_is_not_a_trusted_proxy_is_the_client(
    forged: str, client: str, behind: list[str], how: int
) -> None:
    """Whatever the client itself sent before it, in every spelling."""
    header = ", ".join([forged, spelled(client, how), *(spelled(item, how) for item in behind)])
    assert PROXIES.client(PEER, header) == client


@given(header=ANYTHING)
def test_any_header_yields_an_address_or_the_peer(header: str) -> None:
    found = PROXIES.client(PEER, header)
    assert found == PEER or parse_address(found) is not None


def test_an_invalid_header_yields_the_peer() -> None:
    for header in (
        "", ",", "unknown", "203.0.113.1,", "203.0.113.1, unknown", "203.0.113.1:port",
        "203.0.113.1, [2001:db8::1", "203.0.113.1, 300.1.1.1", "203.0.113.1," + "9" * 5000,
        "10.0.0.1, 192.0.2.7", "203.0.113.1, [10.0.0.1]x",
    ):  # fmt: skip
        assert PROXIES.client(PEER, header) == PEER


def test_the_number_of_addresses_is_bounded() -> None:
    header = ", ".join(["203.0.113.1"] + ["10.0.0.1"] * FORWARDED_COUNT_MAX)
    assert PROXIES.client(PEER, header) == PEER
    header = ", ".join(["203.0.113.1"] + ["10.0.0.1"] * (FORWARDED_COUNT_MAX - 1))
    assert PROXIES.client(PEER, header) == "203.0.113.1"


def test_the_key_of_a_client() -> None:
    for address, key in (
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9%eth0", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("token:k3v9", "token:k3v9"),
        ("jwt:a@b.example", "jwt:a@b.example"),
        ("jwt:203.0.113.9", "jwt:203.0.113.9"),
        ("", ""),
    ):
        assert client_key(address) == key
        assert client_key(key) == key


@given(first=st.ip_addresses(network="2001:db8:1:2::/64"))
def test_all_addresses_of_a_64_are_one_client(first: object) -> None:
    assert client_key(str(first)) == "2001:db8:1:2::/64"


def test_proxies_are_addresses_and_networks() -> None:
    assert "192.0.2.7" in PROXIES
    assert "::ffff:192.0.2.7" in PROXIES
    assert "192.0.2.8" not in PROXIES
    assert "no address" not in PROXIES
    assert not TrustedProxies(" , ")
    assert parse_network("::ffff:10.0.0.0/104") == parse_network("10.0.0.0/8")


def test_an_invalid_proxy_is_named() -> None:
    with pytest.raises(ProxiesInvalid, match=r"--trusted-proxies: 'nginx' is neither"):
        TrustedProxies("10.0.0.1, nginx")
