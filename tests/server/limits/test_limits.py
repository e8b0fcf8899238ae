"""`Limits` with a manual clock: rejections, and the effects of a reload."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.protocol.bucket import BucketState, Growth
from tailrace.protocol.errors import Refusal
from tailrace.server.guard.limits import Limits, LimitsFileInvalid
from tailrace.server.guard.limits.accounts import ACCOUNTS_MAX
from tailrace.server.guard.limits.errors import (
    AppendRateExceeded,
    BucketBytesExceeded,
    BucketRateExceeded,
    BucketStreamsExceeded,
    ClientWaitersExceeded,
    RequestRateExceeded,
    TooManyWaiters,
)
from tailrace.server.problem import problem
from tailrace.server.settings import Settings

S = 1_000_000_000

Make = Callable[..., Limits]


class Clock:
    now = 10**15

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Make:
    def made(text: str, waiters: int = 100, connections: int = 100, proxies: str = "") -> Limits:
        path = tmp_path / "limits.toml"
        path.write_text(text)
        settings = Settings(
            limits=str(path),
            waiters_max=waiters,
            connections_max=connections,
            trusted_proxies=proxies,
        )
        return Limits(settings, clock=clock)

    return made


def refused(call: Callable[..., None], *args: object) -> Refusal | None:
    try:
        call(*args)
    except Refusal as refusal:
        return refusal
    return None


def test_requests_and_bytes_are_limited_separately(make: Make, clock: Clock) -> None:
    limits = make("[client]\nrequests_per_s = 1\nrequests_burst = 2\nappend_bytes_per_s = 10")
    limits.count_request("token:a")
    limits.count_append("token:a", 10)
    limits.count_request("token:a")
    with pytest.raises(RequestRateExceeded) as requests:
        limits.count_request("token:a")
    with pytest.raises(AppendRateExceeded) as size:
        limits.count_append("token:a", 10)
    assert (requests.value.retry_after_s, size.value.retry_after_s) == (1, 1)
    assert {requests.value.code, size.value.code} == {
        "request-rate-exceeded", "append-rate-exceeded",
    }  # fmt: skip
    clock.now += S
    limits.count_request("token:a")
    limits.count_append("token:a", 10)


def test_clients_are_limited_separately(make: Make) -> None:
    limits = make("[client]\nrequests_per_s = 1")
    for client in ("token:a", "token:b", "jwt:a", "203.0.113.1", "203.0.113.2", "2001:db8::1"):
        limits.count_request(client)
        assert refused(limits.count_request, client) is not None
    # The same /64, and another spelling of the same address.
    assert refused(limits.count_request, "2001:db8::2") is not None
    assert refused(limits.count_request, "2001:db8::/64") is not None
    assert refused(limits.count_request, "::ffff:203.0.113.1") is not None


def test_an_append_larger_than_the_burst_passes_and_leaves_a_debt(make: Make, clock: Clock) -> None:
    limits = make("[client]\nappend_bytes_per_s = 10\nappend_bytes_burst = 20")
    limits.count_append("token:a", 100)
    with pytest.raises(AppendRateExceeded) as caught:
        limits.count_append("token:a", 100)
    assert caught.value.retry_after_s == 10
    with pytest.raises(AppendRateExceeded) as caught:
        limits.count_append("token:a", 1, check_only=True)
    assert caught.value.retry_after_s == 9
    clock.now += 10 * S
    for _ in range(9):
        limits.count_append("token:a", 100, check_only=True)
    limits.count_append("token:a", 100)
    limits.count_append("token:a", 0)


def test_retry_after_is_the_time_of_the_refill(make: Make) -> None:
    limits = make("[client]\nrequests_per_s = 0.1")
    limits.count_request("token:a")
    refusal = refused(limits.count_request, "token:a")
    assert refusal is not None
    response = problem(refusal)
    assert response.status == 429
    assert (b"Retry-After", b"10") in response.headers


def test_the_number_of_accounts_is_bounded(make: Make) -> None:
    limits = make("[client]\nrequests_per_s = 1")
    assert limits._accounts._count_max == ACCOUNTS_MAX == 65_536
    limits._accounts._count_max = 1000
    for number in range(3000):
        limits.count_request(f"2001:db8:0:{number:x}::1")
    assert len(limits._accounts._accounts) == 1000
    # The most recent clients still have their accounts.
    assert refused(limits.count_request, f"2001:db8:0:{2999:x}::2") is not None


def test_the_file_limits_the_waiters_of_a_client(make: Make) -> None:
    limits = make("[client]\nwaiters_max = 2\n[[exception]]\nmatch = 'token:b*'")
    limits.join("token:a")
    limits.join("token:a")
    with pytest.raises(ClientWaitersExceeded) as caught:
        limits.join("token:a")
    assert (caught.value.status, caught.value.retry_after_s) == (429, 1)
    for _ in range(10):
        limits.join("token:bb")
    limits.leave("token:a")
    limits.join("token:a")


def test_no_client_takes_all_waiters(make: Make) -> None:
    limits = make("", waiters=90)
    for _ in range(80):
        limits.join("203.0.113.1")
    with pytest.raises(TooManyWaiters) as caught:
        limits.join("203.0.113.1")
    assert (b"Retry-After", b"1") in problem(caught.value).headers
    limits.join("203.0.113.2")


def test_connections_are_shared_by_address_and_proxies_are_exempt(make: Make) -> None:
    limits = make(
        "[[exception]]\nmatch = '203.0.113.9'\nconnections_max = 1",
        connections=18,
        proxies="192.0.2.1",
    )
    assert [limits.connect("203.0.113.9") for _ in range(2)] == [True, False]
    limits.disconnect("203.0.113.9")
    assert [limits.connect("203.0.113.1") for _ in range(17)] == [True] * 16 + [False]
    assert [limits.connect("192.0.2.1") for _ in range(3)] == [True, True, False]
    limits.disconnect("192.0.2.1")
    assert limits.connect("::ffff:192.0.2.1")
    limits.disconnect("203.0.113.1")
    assert limits.connect("2001:db8::1")
    assert not limits.connect("2001:db8::2")


def test_a_reload_applies_new_rules_and_keeps_waiters(make: Make, tmp_path: Path) -> None:
    limits = make("[client]\nrequests_per_s = 1\nwaiters_max = 1")
    limits.count_request("token:a")
    limits.join("token:a")
    path = tmp_path / "limits.toml"
    path.write_text("[client]\nrequests_per_s = 1\nrequests_burst = 3\nwaiters_max = 2")
    limits.reload()
    for _ in range(3):
        limits.count_request("token:a")
    assert refused(limits.count_request, "token:a") is not None
    limits.join("token:a")
    assert refused(limits.join, "token:a") is not None


def test_an_invalid_file_changes_nothing(make: Make, tmp_path: Path) -> None:
    limits = make("[client]\nrequests_per_s = 1\n[[bucket]]\nmatch = '*'\nstreams_max = 0")
    limits.count_request("token:a")
    (tmp_path / "limits.toml").write_text("[client]\nrequests_per_s = 9\nfoo = 1")
    with pytest.raises(LimitsFileInvalid, match="foo"):
        limits.reload()
    assert refused(limits.count_request, "token:a") is not None
    assert refused(limits.quotas.check, b"chat", BucketState(1), Growth(1)) is not None


def test_without_a_file_nothing_is_limited_and_a_reload_does_nothing() -> None:
    limits = Limits(Settings(waiters_max=3, trusted_proxies="192.0.2.0/24"))
    limits.reload()
    for _ in range(1000):
        limits.count_request("token:a")
        limits.count_append("token:a", 1 << 40)
    assert not limits.quotas
    assert "192.0.2.9" in limits.proxies
    assert limits.waiters.slots == 3


QUOTAS = """
[[bucket]]
match = "chat-*"
bytes_max = 100
streams_max = 2
messages_per_s = 1
messages_burst = 3
"""


def test_a_bucket_may_grow_up_to_its_quota(make: Make) -> None:
    for state, growth, code in (
        (BucketState(1, 1, 90), Growth(0, 10), None),
        (BucketState(1, 1, 90), Growth(0, 11), "bucket-bytes-exceeded"),
        (BucketState(1, 1, 90), Growth(1, 10), None),
        (BucketState(1, 2, 0), Growth(1, 0), "bucket-streams-exceeded"),
        (BucketState(1, 2, 0), Growth(0, 1, 1), None),
        # The bucket exceeds a lowered quota: growth of another kind passes.
        (BucketState(1, 1, 900), Growth(1, 0), None),
        (BucketState(1, 9, 900), Growth(0, -1), None),
    ):
        refusal = refused(make(QUOTAS).quotas.check, b"chat-a", state, growth)
        assert (None if refusal is None else refusal.code) == code
        if refusal is not None:
            assert refusal.status == 507
        assert refused(make(QUOTAS).quotas.check, b"logs", state, growth) is None


def test_messages_of_a_bucket_have_a_rate(make: Make, clock: Clock) -> None:
    quotas = make(QUOTAS).quotas
    state, one = BucketState(1), Growth(0, 1, 1)
    for _ in range(3):
        quotas.check(b"chat-a", state, one)
    with pytest.raises(BucketRateExceeded) as caught:
        quotas.check(b"chat-a", state, one)
    assert (caught.value.status, caught.value.retry_after_s) == (429, 1)
    quotas.check(b"chat-b", state, Growth(0, 9, 9))
    with pytest.raises(BucketRateExceeded) as caught:
        quotas.check(b"chat-b", state, one)
    assert caught.value.retry_after_s == 7
    clock.now += 7 * S
    quotas.check(b"chat-b", state, one)


def test_an_append_rejected_for_its_size_costs_no_messages(make: Make) -> None:
    quotas = make(QUOTAS).quotas
    for _ in range(9):
        with pytest.raises(BucketBytesExceeded):
            quotas.check(b"chat-a", BucketState(1, 1, 100), Growth(0, 1, 1))
        with pytest.raises(BucketStreamsExceeded):
            quotas.check(b"chat-a", BucketState(1, 2, 0), Growth(1, 1, 1))
    quotas.check(b"chat-a", BucketState(1, 1, 0), Growth(0, 3, 3))


def test_without_rules_there_are_no_quotas() -> None:
    assert not Limits(Settings()).quotas
