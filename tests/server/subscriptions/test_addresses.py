"""Where webhooks may go."""

from __future__ import annotations

import pytest

from tailrace.server.subscriptions.addresses import Networks, check_address, check_url
from tailrace.server.subscriptions.errors import WebhookUrlRejected

INTERNAL = [
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "fc00::1",
    "fd12:3456::1",
]
LOOPBACK = ["127.0.0.1", "127.0.0.255", "127.1.2.3", "::1"]
NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "169.254.0.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    # IPv4 inside IPv6: mapped, compatible, NAT64, 6to4.
    "::ffff:169.254.169.254",
    "::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::1",
    "2002:a9fe:a9fe::1",
    # The metadata services of clouds in private networks.
    "100.100.100.200",
    "::ffff:100.100.100.200",
    "fd00:ec2::254",
    "fd00:ec2::254%eth0",
    "not an address",
    "",
]
EMBEDDED_INTERNAL = [
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::127.0.0.1",
    "2002:0a00:0001::1",
]
GLOBAL = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


def may_reach(host: str, address: str, networks: Networks) -> bool:
    try:
        check_address(host, address, networks)
    except WebhookUrlRejected:
        return False
    return True


@pytest.mark.parametrize("networks", ["public", "loopback", "private"])
def test_global_addresses_are_reached_and_reserved_ones_never(networks: Networks) -> None:
    assert [text for text in GLOBAL if not may_reach("example.org", text, networks)] == []
    assert [text for text in NEVER if may_reach("example.org", text, networks)] == []
    assert [text for text in NEVER if may_reach("localhost", text, networks)] == []


@pytest.mark.parametrize("host", ["example.org", "localhost"])
def test_private_addresses_are_reached_with_the_setting_only(host: str) -> None:
    for text in (*INTERNAL, *EMBEDDED_INTERNAL):
        assert not may_reach(host, text, "public")
        assert not may_reach(host, text, "loopback")
    assert [text for text in INTERNAL if not may_reach(host, text, "private")] == []


def test_loopback_is_reached_by_the_names_of_the_protocol_only() -> None:
    for text in LOOPBACK:
        assert not may_reach("example.org", text, "loopback")
        assert not may_reach("localhost.", text, "loopback")
        assert may_reach("localhost", text, "loopback")
        assert not may_reach("localhost", text, "public")
        assert may_reach("worker.internal", text, "private")


GOOD = [
    "https://example.org/hook",
    "https://example.org:8443/hook?x=1",
    "http://localhost/hook",
    "http://localhost:9000",
    "http://127.0.0.1:9000/hook",
    "http://127.0.0.255/",
    "https://localhost/hook",
    "https://[2606:4700:4700::1111]/",
]
BAD = [
    "http://example.org/hook",
    "http://10.0.0.1/hook",
    "https://10.0.0.1/hook",
    "http://127.1.0.1/hook",
    "https://127.1.0.1/hook",
    "http://[::1]/hook",
    "https://169.254.169.254/latest/meta-data",
    "http://localhost.example.org/",
    "http://localhost@example.org/",
    "https://user:secret@example.org/",
    "https://example.org/#fragment",
    "https://example.org:0/",
    "https://example.org:99999/",
    "https:///hook",
    "https://",
    "ftp://example.org/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "//example.org/",
    "example.org",
    "",
    "https://exa mple.org/",
    "https://example.org/\r\nX: y",
    "http://127.0.0.1\\@example.org/",
    "https://exämple.org/",
    "https://example.org/" + "x" * 3000,
]


def test_urls_are_https_except_to_this_machine() -> None:
    for url in GOOD:
        check_url(url, "loopback")


@pytest.mark.parametrize("url", BAD)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(WebhookUrlRejected) as raised:
        check_url(url, "loopback")
    assert (raised.value.status, raised.value.code) == (400, "WEBHOOK_URL_REJECTED")


def test_the_setting_excludes_this_machine_or_admits_private_networks() -> None:
    for url in ("http://localhost/", "http://127.0.0.1/", "https://127.0.0.1/"):
        with pytest.raises(WebhookUrlRejected):
            check_url(url, "public")
    for url in ("http://worker.internal/hook", "http://10.0.0.1/hook", "http://[fd00::1]/"):
        check_url(url, "private")
    for host in ("169.254.169.254", "100.100.100.200", "[fd00:ec2::254]"):
        with pytest.raises(WebhookUrlRejected):
            check_url(f"http://{host}/", "private")


@pytest.mark.parametrize("networks", ["public", "loopback", "private"])
def test_addresses_have_one_spelling(networks: Networks) -> None:
    """Resolvers take more for an IPv4 address than four decimal numbers."""
    for host in (
        "2130706433",
        "127.1",
        "0177.0.0.1",
        "0x7f000001",
        "0X7F.1",
        "0x7f.0.0.1",
        "127.0.0.0x1",
        "017700000001",
        "127.0.0.1.",
        "8.8.2056",
        "256.1.1.1",
        "0x",
    ):
        with pytest.raises(WebhookUrlRejected):
            check_url(f"https://{host}/", networks)
    for host in ("1.example.org", "0x7f.example.org", "127.0.0.1.example.org", "x0x1", "3com"):
        check_url(f"https://{host}/", networks)
