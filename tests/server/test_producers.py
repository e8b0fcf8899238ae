"""§5.2.1: idempotent producers: every row of the table, and durability of the state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.conftest import KINDS
from tests.support.http import Response
from tests.support.looping import for_each
from tests.support.streams import Api, check_problem

MAX = 2**53 - 1


def claim(epoch: int, seq: int, producer: str = "p") -> dict[str, str]:
    return {"Producer-Id": producer, "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}


def check_accepted(response: Response, epoch: int, seq: int) -> None:
    """200: new data; the accepted epoch and the highest sequence number are echoed."""
    assert response.status == 200, response.body
    assert response.body == b""
    check_echo(response, epoch, seq)


def check_duplicate(response: Response, epoch: int, highest: int) -> None:
    """204: the data is stored already; the highest accepted sequence number is returned."""
    assert response.status == 204, response.body
    check_echo(response, epoch, highest)


def check_echo(response: Response, epoch: int, seq: int) -> None:
    assert response.headers["producer-epoch"] == str(epoch)
    assert response.headers["producer-seq"] == str(seq)
    assert "stream-next-offset" in response.headers


def check_gap(response: Response, expected: int, received: int) -> None:
    check_problem(response, 409, "producer-gap")
    assert response.headers["producer-expected-seq"] == str(expected)
    assert response.headers["producer-received-seq"] == str(received)


def check_fenced(response: Response, epoch: int) -> None:
    check_problem(response, 403, "producer-fenced")
    assert response.headers["producer-epoch"] == str(epoch)


def test_first_batch_and_the_next_ones_are_200(api: Api) -> None:
    """seq == lastSeq + 1: accept."""
    path = api.create()
    for seq in range(3):
        check_accepted(api.post(path, b"%d" % seq, claim(0, seq)), 0, seq)
    assert api.read_all(path) == b"012"


def test_duplicates_are_204_and_change_nothing(api: Api) -> None:
    """seq <= lastSeq: for each earlier batch, in any order, with any body."""
    path = api.create()
    for seq in range(3):
        api.append(path, b"%d" % seq, claim(0, seq))
    before = api.facts(path)
    for seq in (2, 0, 1, 2):
        response = api.post(path, b"something else", claim(0, seq))
        check_duplicate(response, 0, 2)
        assert response.headers["stream-next-offset"] == api.tail(path)
    assert api.facts(path) == before


def test_a_gap_is_409_with_expected_and_received(api: Api) -> None:
    """seq > lastSeq + 1."""
    path = api.create()
    api.append(path, b"0", claim(0, 0))
    check_gap(api.post(path, b"x", claim(0, 2)), 1, 2)
    check_gap(api.post(path, b"x", claim(0, MAX)), 1, MAX)
    check_accepted(api.post(path, b"1", claim(0, 1)), 0, 1)


@for_each("epoch", [0, 1, 7, MAX])
def test_an_unknown_producer_starts_at_any_epoch_with_seq_0(api: Api, epoch: int) -> None:
    """Otherwise 409 with Producer-Expected-Seq: 0."""
    path = api.create()
    check_gap(api.post(path, b"x", claim(epoch, 1)), 0, 1)
    check_accepted(api.post(path, b"0", claim(epoch, 0)), epoch, 0)


def test_a_new_epoch_starts_at_seq_0(api: Api) -> None:
    """With another seq it is 400."""
    path = api.create()
    api.append(path, b"a", claim(0, 0))
    api.append(path, b"b", claim(0, 1))
    check_problem(api.post(path, b"x", claim(1, 1)), 400, "producer-epoch-start")
    check_problem(api.post(path, b"x", claim(1, 2)), 400, "producer-epoch-start")
    check_accepted(api.post(path, b"c", claim(1, 0)), 1, 0)
    check_accepted(api.post(path, b"d", claim(1, 1)), 1, 1)
    assert api.read_all(path) == b"abcd"


def test_a_rejected_new_epoch_does_not_fence(api: Api) -> None:
    """Only an accepted batch changes the epoch of the producer."""
    path = api.create()
    api.append(path, b"a", claim(0, 0))
    assert api.post(path, b"x", claim(5, 1)).status == 400
    assert api.post(path, b"x", claim(5, 0), "text/html").status == 409
    check_accepted(api.post(path, b"b", claim(0, 1)), 0, 1)


def test_a_zombie_is_403_with_the_current_epoch(api: Api) -> None:
    """epoch < state.epoch, with any seq, also for a retry of an old epoch."""
    path = api.create()
    api.append(path, b"a", claim(0, 0))
    api.append(path, b"b", claim(3, 0))
    for seq in (0, 1, 9):
        check_fenced(api.post(path, b"x", claim(0, seq)), 3)
        check_fenced(api.post(path, b"x", claim(2, seq)), 3)
    assert api.read_all(path) == b"ab"


def test_a_new_producer_takes_over_after_a_403(api: Api) -> None:
    """Auto-claim: it takes the current epoch from the response and uses the next one."""
    path = api.create()
    api.append(path, b"a", claim(5, 0))
    refused = api.post(path, b"b", claim(0, 0))
    epoch = int(refused.headers["producer-epoch"]) + 1
    check_accepted(api.post(path, b"b", claim(epoch, 0)), 6, 0)


def test_the_largest_epoch_and_sequence(api: Api) -> None:
    """2^53-1 is accepted and returned exactly."""
    path = api.create()
    check_accepted(api.post(path, b"a", claim(MAX, 0)), MAX, 0)
    check_fenced(api.post(path, b"x", claim(MAX - 1, 0)), MAX)
    check_problem(api.post(path, b"x", claim(MAX + 1, 0)), 400, "header-invalid")


def test_the_state_of_producers_is_independent(api: Api) -> None:
    """It is per stream and producer id; ids are compared exactly."""
    one, two = api.create(), api.create()
    for path in (one, two):
        for producer in ("p", "P", "pp", "ö", "p q", "p/q;r", "0"):
            check_accepted(api.post(path, b"x", claim(0, 0, producer)), 0, 0)


def test_the_sequence_counts_requests_and_not_messages(api: Api) -> None:
    """A JSON array of three elements is one batch."""
    path = api.create("application/json")
    check_accepted(api.post(path, b"[1,2,3]", claim(0, 0), "application/json"), 0, 0)
    check_accepted(api.post(path, b"[4]", claim(0, 1), "application/json"), 0, 1)
    check_duplicate(api.post(path, b"[1,2,3]", claim(0, 0), "application/json"), 0, 1)
    assert api.get(path).body == b"[1,2,3,4]"


def test_a_rejected_batch_can_be_sent_again(api: Api) -> None:
    """A batch that is rejected for its content does not advance the sequence."""
    path = api.create("application/json")
    assert api.post(path, b"{", claim(0, 0), "application/json").status == 400
    assert api.post(path, b"{}", claim(0, 0), "text/plain").status == 409
    assert api.post(path, b"", claim(0, 0), "application/json").status == 400
    check_accepted(api.post(path, b"{}", claim(0, 0), "application/json"), 0, 0)


def test_a_duplicate_is_acknowledged_before_its_content_is_checked(api: Api) -> None:
    """Even if its body or content type would be rejected."""
    path = api.create("application/json")
    api.append(path, b"1", claim(0, 0), "application/json")
    check_duplicate(api.post(path, b"{", claim(0, 0), "application/json"), 0, 0)
    check_duplicate(api.post(path, b"x", claim(0, 0), "text/plain"), 0, 0)
    check_duplicate(api.post(path, b"", claim(0, 0), "application/json"), 0, 0)


# -- closing -------------------------------------------------------------------------------------


@for_each("body", [b"", b"end"])
def test_a_producer_can_close_and_retry(api: Api, body: bytes) -> None:
    """Each retry of the batch that closed the stream is 204 with Stream-Closed."""
    path = api.create()
    api.append(path, b"a", claim(0, 0))
    closing = claim(0, 1) | {"Stream-Closed": "true"}
    first = api.post(path, body, closing)
    assert first.status in (200, 204)
    check_echo(first, 0, 1)
    for response in (first, api.post(path, body, closing), api.post(path, body, closing)):
        assert response.headers["stream-closed"] == "true"
    retry = api.post(path, body, closing)
    check_duplicate(retry, 0, 1)
    assert api.read_all(path) == b"a" + body


def test_other_batches_on_a_closed_stream_are_409(api: Api) -> None:
    """With Stream-Closed, also for an earlier batch of the same producer."""
    path = api.create()
    api.append(path, b"a", claim(0, 0))
    api.append(path, b"b", claim(0, 1) | {"Stream-Closed": "true"})
    for sent in (claim(0, 0), claim(0, 2), claim(1, 0), claim(0, 0, "other"), claim(0, 5, "other")):
        for more in ({}, {"Stream-Closed": "true"}):
            response = api.post(path, b"x", sent | more)
            check_problem(response, 409, "stream-closed")
            assert response.headers["stream-closed"] == "true"
            assert response.headers["stream-next-offset"] == api.tail(path)
    assert api.read_all(path) == b"ab"


def test_a_zombie_on_a_closed_stream_is_403(api: Api) -> None:
    """Fencing is checked before closure."""
    path = api.create()
    api.append(path, b"a", claim(4, 0) | {"Stream-Closed": "true"})
    check_fenced(api.post(path, b"x", claim(3, 0)), 4)


def test_a_close_only_without_producer_on_a_closed_stream_is_204(api: Api) -> None:
    """Even if a producer closed it."""
    path = api.create()
    api.append(path, b"a", claim(0, 0) | {"Stream-Closed": "true"})
    api.close_stream(path)


def test_close_only_of_a_producer_is_checked_like_a_batch(api: Api) -> None:
    """A gap, a new epoch not at 0 and a zombie are rejected, and the stream stays open."""
    path = api.create()
    api.append(path, b"a", claim(1, 0))
    closing = {"Stream-Closed": "true"}
    check_gap(api.post(path, b"", claim(1, 2) | closing), 1, 2)
    check_problem(api.post(path, b"", claim(2, 1) | closing), 400, "producer-epoch-start")
    check_fenced(api.post(path, b"", claim(0, 1) | closing), 1)
    # A retry of a batch that did not close the stream does not close it.
    check_duplicate(api.post(path, b"", claim(1, 0) | closing), 1, 0)
    assert "stream-closed" not in api.head(path).headers


def test_no_batch_is_a_duplicate_of_a_close_without_a_producer(api: Api) -> None:
    """The last accepted batch of a producer did not close the stream: 409."""
    path = api.create()
    api.append(path, b"a", claim(0, 0))
    api.close_stream(path)
    check_problem(api.post(path, b"a", claim(0, 0)), 409, "stream-closed")


# -- restart -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wire-rocksdb", "asgi-rocksdb"])
def test_producer_state_is_durable(kind: str, tmp_path: Path) -> None:
    """After SIGKILL and a restart every row of the table holds."""
    with KINDS[kind](tmp_path) as server:
        api = Api(server)
        open_path, closed_path = api.create(), api.create()
        for seq in range(3):
            api.append(open_path, b"%d" % seq, claim(2, seq) | {"Stream-Seq": f"s{seq}"})
        api.append(open_path, b"q", claim(0, 0, "q"))
        api.append(closed_path, b"end", claim(0, 0) | {"Stream-Closed": "true"})
        before = api.facts(open_path), api.facts(closed_path)
        etag = api.get(open_path).headers["etag"]
        server.restart()
        api.close()
        assert (api.facts(open_path), api.facts(closed_path)) == before
        assert api.get(open_path, headers={"If-None-Match": etag}).status == 304
        check_duplicate(api.post(open_path, b"x", claim(2, 2)), 2, 2)
        check_duplicate(api.post(open_path, b"x", claim(0, 0, "q")), 0, 0)
        check_fenced(api.post(open_path, b"x", claim(1, 0)), 2)
        check_gap(api.post(open_path, b"x", claim(2, 4)), 3, 4)
        check_problem(api.post(open_path, b"x", {"Stream-Seq": "s2"}), 409, "seq-regression")
        check_accepted(api.post(open_path, b"3", claim(2, 3) | {"Stream-Seq": "s3"}), 2, 3)
        check_duplicate(
            api.post(closed_path, b"end", claim(0, 0) | {"Stream-Closed": "true"}), 0, 0
        )
        check_problem(api.post(closed_path, b"x", claim(0, 1)), 409, "stream-closed")
        assert api.read_all(open_path) == b"012q3"
        api.close()
