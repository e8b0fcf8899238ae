"""The limits file: its rules, the clients and buckets that they apply to, and its errors."""

import re
from pathlib import Path

import pytest

from tailrace.server.guard.limits import LimitsFileInvalid
from tailrace.server.guard.limits.limits_file import (
    NO_LIMITS,
    BucketRule,
    ClientException,
    ClientRule,
    LimitRules,
    load_rules,
)
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


def rules(tmp_path: Path, text: str) -> LimitRules:
    path = tmp_path / "limits.toml"
    path.write_text(text)
    return load_rules(path)


def test_every_key_is_read(tmp_path: Path) -> None:
    found = rules(tmp_path, FULL)
    assert found.client == ClientRule(
        requests_per_s=100,
        requests_burst=200,
        append_bytes_per_s=1_000_000,
        append_bytes_burst=5_000_000,
        waiters_max=10,
        connections_max=20,
    )
    assert found.for_bucket("chat-rooms") == BucketRule(
        match="chat-rooms", bytes_max=10, messages_per_s=4, messages_burst=9
    )
    assert found.for_bucket("chat-other") == BucketRule(match="chat-*", streams_max=3)
    assert found.for_bucket("logs") is None


def test_an_empty_file_sets_no_limit(tmp_path: Path) -> None:
    assert rules(tmp_path, "") == NO_LIMITS
    assert NO_LIMITS.for_client("203.0.113.1") == ClientRule()
    assert NO_LIMITS.for_bucket("chat-rooms") is None


def test_the_first_matching_exception_replaces_the_client_table(tmp_path: Path) -> None:
    found = rules(tmp_path, FULL)
    slow = ClientException(match="token:k3v9*", requests_per_s=0.5)
    for client, rule in (
        ("token:k3v9abc", slow),
        ("token:k3v9", slow),
        ("jwt:batch@example.org", ClientException(match="jwt:batch@example.org")),
        ("203.0.113.77", ClientException(match="203.0.113.0/24", waiters_max=0)),
        ("2001:db8:1:5::/64", ClientException(match="2001:db8:1::/48", connections_max=7)),
    ):
        assert found.for_client(client) == rule, client
    for client in (
        "token:k3v8", "jwt:batch@example.org2", "203.0.114.1", "2001:db8:2::/64", "jwt:203.0.113.7"
    ):  # fmt: skip
        assert found.for_client(client) is found.client, client


MISTAKES = [
    ("client = 3", "[client] must be a table"),
    ("[[client]]", "[client] must be a table"),
    ("[clients]", "unknown key 'clients'; known: client, exception, bucket"),
    ("[exception]\nmatch = 'token:a'", "[exception] must be written [[exception]]"),
    ("bucket = [3]", "[[bucket]] number 1 must be a table"),
    ("[client]\nrequests = 3", "[client]: unknown key 'requests'; known: requests_per_s"),
    ("[client]\nmatch = 'token:a'", "[client]: unknown key 'match'"),
    ("[client]\nrequests_per_s = 0", "[client]: requests_per_s must be a number >= 0.001, not 0"),
    ("[client]\nrequests_per_s = nan", "requests_per_s must be a number >= 0.001, not nan"),
    ("[client]\nrequests_per_s = true", "requests_per_s must be a number, not True"),
    ("[client]\nrequests_per_s = '9'", "requests_per_s must be a number, not '9'"),
    ("[client]\nrequests_burst = 9", "requests_burst has no effect without requests_per_s"),
    ("[client]\nrequests_per_s = 1\nrequests_burst = 0", "must be a whole number >= 1, not 0"),
    ("[client]\nwaiters_max = -1", "waiters_max must be a whole number >= 0, not -1"),
    ("[client]\nconnections_max = 1.5", "connections_max must be a whole number, not 1.5"),
    ("[[exception]]\nwaiters_max = 3", "[[exception]] number 1: match is missing"),
    (
        "[[exception]]\nmatch = 'token:a'\n[[exception]]\nmatch = 'k3v9'",
        "[[exception]] number 2: match = 'k3v9' is neither an address or network nor a principal",
    ),
    ("[[exception]]\nmatch = 'token:*a'", "'*' is only allowed at the end"),
    ("[[bucket]]\nmatch = ''", "[[bucket]] number 1: match is empty"),
    ("[[bucket]]\nmatch = 'a'\nbytes = 3", "unknown key 'bytes'; known: match, bytes_max"),
    ("[[bucket]]\nmatch = 'a'\nbytes_max = true", "bytes_max must be a whole number, not True"),
    ("[client\n", "at line 1"),
]  # fmt: skip


def test_an_error_names_the_file_and_the_key(tmp_path: Path) -> None:
    for text, named in MISTAKES:
        with pytest.raises(LimitsFileInvalid) as caught:
            rules(tmp_path, text)
        assert named in str(caught.value)
        assert str(tmp_path / "limits.toml") in str(caught.value)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LimitsFileInvalid, match=r"none\.toml"):
        load_rules(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(LimitsFileInvalid, match=r"latin\.toml"):
        load_rules(tmp_path / "latin.toml")


def test_the_example_of_the_guide_does_what_the_guide_says(tmp_path: Path) -> None:
    page = (REPO_ROOT / "docs/guides/limits.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = rules(tmp_path, example)
    assert (found.client.requests_per_s, found.client.requests_burst) == (200, 400)
    exempt = found.for_client("203.0.113.5")
    assert {getattr(exempt, name) for name in ClientRule.__struct_fields__} == {None}
    assert found.for_client("token:k3v9xx").append_bytes_per_s == 10**8
    bucket = found.for_bucket("chat-1")
    assert bucket is not None
    assert (bucket.bytes_max, bucket.streams_max) == (10**10, 10**5)
    assert (bucket.messages_per_s, bucket.messages_burst) == (5000, 20_000)
    for name in (*ClientRule.__struct_fields__, *BucketRule.__struct_fields__):
        assert f"`{name}`" in page, name
