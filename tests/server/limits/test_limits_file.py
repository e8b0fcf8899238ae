"""The limits file: what it can say, who is meant, and that mistakes are named where they are."""

import re
from pathlib import Path

import pytest

from tailrace.server.guard.limits import LimitsFileInvalid
from tailrace.server.guard.limits.limits_file import (
    _BUCKET_KEYS,
    _CLIENT_KEYS,
    NO_LIMITS,
    BucketRule,
    ClientRule,
    Rules,
    load_rules,
)
from tailrace.server.guard.limits.rate import Rate
from tests.support.server import REPO_ROOT

FULL = """
[client]
requests_per_s = 100
requests_burst = 200
append_bytes_per_s = 1_000_000
append_bytes_burst = 5_000_000
waiters_max = 10
connections_max = 20

[[exception]]
match = "token:k3v9*"
requests_per_s = 0.5

[[exception]]
match = "jwt:batch@example.org"

[[exception]]
match = "203.0.113.0/24"
waiters_max = 0

[[exception]]
match = "2001:db8:1::/48"
connections_max = 7

[[bucket]]
match = "chat-rooms"
bytes_max = 10
messages_per_s = 4
messages_burst = 9

[[bucket]]
match = "chat-*"
streams_max = 3
"""


def rules(tmp_path: Path, text: str) -> Rules:
    path = tmp_path / "limits.toml"
    path.write_text(text)
    return load_rules(path)


def test_all_that_it_can_say(tmp_path: Path) -> None:
    found = rules(tmp_path, FULL)
    assert found.client == ClientRule(
        Rate.of(100, 200), Rate.of(1_000_000, 5_000_000), waiters_max=10, connections_max=20
    )
    assert found.of_bucket("chat-rooms") == BucketRule(bytes_max=10, messages=Rate.of(4, 9))
    assert found.of_bucket("chat-other") == BucketRule(streams_max=3)
    assert found.of_bucket("logs") is None


def test_an_empty_file_limits_nothing(tmp_path: Path) -> None:
    assert rules(tmp_path, "") == NO_LIMITS
    assert NO_LIMITS.of_client("203.0.113.1") == ClientRule()
    assert NO_LIMITS.of_bucket("chat-rooms") is None


@pytest.mark.parametrize(
    ("client", "rule"),
    [
        ("token:k3v9abc", ClientRule(Rate.of(0.5, 1))),
        ("token:k3v9", ClientRule(Rate.of(0.5, 1))),
        ("jwt:batch@example.org", ClientRule()),
        ("203.0.113.77", ClientRule(waiters_max=0)),
        ("2001:db8:1:5::/64", ClientRule(connections_max=7)),
    ],
)
def test_the_first_exception_that_matches_holds_instead(
    tmp_path: Path, client: str, rule: ClientRule
) -> None:
    assert rules(tmp_path, FULL).of_client(client) == rule


@pytest.mark.parametrize(
    "client",
    ["token:k3v8", "jwt:batch@example.org2", "203.0.114.1", "2001:db8:2::/64", "jwt:203.0.113.7"],
)
def test_for_all_others_the_client_table_holds(tmp_path: Path, client: str) -> None:
    found = rules(tmp_path, FULL)
    assert found.of_client(client) is found.client


def test_a_rate_without_a_burst_takes_a_second_of_it_at_once(tmp_path: Path) -> None:
    found = rules(tmp_path, "[client]\nrequests_per_s = 7.5\nappend_bytes_per_s = 0.5")
    assert found.client == ClientRule(Rate.of(7.5, 7), Rate.of(0.5, 1))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("client = 3", r"\[client\] must be a table"),
        ("[[client]]", r"\[client\] must be a table"),
        ("[clients]", "the file: unknown key 'clients'"),
        ("[exception]\nmatch = 'token:a'", r"\[exception\] must be written \[\[exception\]\]"),
        ("bucket = [3]", r"\[\[bucket\]\] number 1 must be a table"),
        ("[client]\nrequests = 3", r"\[client\]: unknown key 'requests'; known: requests_per_s"),
        ("[client]\nmatch = 'token:a'", r"\[client\]: unknown key 'match'"),
        ("[client]\nrequests_per_s = 0", r"\[client\]: requests_per_s must be a number from 0.001"),
        ("[client]\nrequests_per_s = nan", "requests_per_s must be a number"),
        ("[client]\nrequests_per_s = true", "requests_per_s must be a number"),
        ("[client]\nrequests_per_s = '9'", "requests_per_s must be a number"),
        ("[client]\nrequests_burst = 9", "requests_burst means nothing without requests_per_s"),
        ("[client]\nrequests_per_s = 1\nrequests_burst = 0", "must be a whole number from 1 on"),
        ("[client]\nwaiters_max = -1", "waiters_max must be a whole number from 0 on, not -1"),
        ("[client]\nconnections_max = 1.5", "connections_max must be a whole number from 1 on"),
        ("[[exception]]\nwaiters_max = 3", r"\[\[exception\]\] number 1: match is missing"),
        (
            "[[exception]]\nmatch = 'token:a'\n[[exception]]\nmatch = 'k3v9'",
            r"number 2: match = 'k3v9' is neither an address or network nor a principal",
        ),
        ("[[exception]]\nmatch = 'token:*a'", r"'\*' may stand at the end only"),
        ("[[bucket]]\nmatch = ''", r"\[\[bucket\]\] number 1: match is missing"),
        ("[[bucket]]\nmatch = 'a'\nbytes = 3", "number 1: unknown key 'bytes'; known: bytes_max"),
        ("[[bucket]]\nmatch = 'a'\nbytes_max = true", "bytes_max must be a whole number"),
        ("[client\n", "at line 1"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(LimitsFileInvalid, match=wrong) as caught:
        rules(tmp_path, text)
    assert str(tmp_path / "limits.toml") in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(LimitsFileInvalid, match=r"none\.toml"):
        load_rules(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(LimitsFileInvalid, match=r"latin\.toml"):
        load_rules(tmp_path / "latin.toml")


def test_the_example_of_the_guide_says_what_the_guide_says(tmp_path: Path) -> None:
    page = (REPO_ROOT / "docs/guides/limits.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = rules(tmp_path, example)
    assert found.client.requests == Rate.of(200, 400)
    assert found.of_client("203.0.113.5") == ClientRule()
    assert found.of_client("token:k3v9xx") == ClientRule(append_bytes=Rate.of(10**8, 10**8))
    assert found.of_bucket("chat-1") == BucketRule(10**10, 10**5, Rate.of(5000, 20_000))
    for name in (*_CLIENT_KEYS, *_BUCKET_KEYS):
        assert f"`{name}`" in page, name
