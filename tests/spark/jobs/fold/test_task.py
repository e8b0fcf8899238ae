"""Tasks of a fold, on a real server and without Spark."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from tailrace.client import Bucket, Client, Retry
from tailrace.spark.folds import FoldSpec
from tailrace.spark.jobs.fold import task as fold_task
from tailrace.spark.jobs.fold.plan import DuePolicy, PlanEntry, plan
from tailrace.spark.jobs.fold.results import StreamFold
from tailrace.spark.jobs.fold.task import FoldTask
from tailrace.spark.rows import RangeError, read_rows
from tests.support.server import ServerProcess

LAST = FoldSpec.of("last-write-wins", "id")
JSON = "application/json"
BUCKET = "folds"


@pytest.fixture
def bucket(client: Client) -> Bucket:
    """Three streams, a, b and c, with two messages of the same key each."""
    found = client.bucket(BUCKET)
    found.create()
    for name in "abc":
        refill(found, name)
    return found


def refill(bucket: Bucket, name: str) -> None:
    bucket.stream(name).create(JSON)
    bucket.stream(name).append_json({"id": 1, "n": 1}, {"id": 1, "n": 2})


def due(bucket: Bucket, spec: FoldSpec = LAST) -> list[PlanEntry]:
    return plan(bucket, BUCKET, spec, DuePolicy(), 0).due


def run(
    client: Client,
    entries: list[PlanEntry],
    spec: FoldSpec = LAST,
    *,
    adopt: bool = False,
    before_last: Callable[[], object] = lambda: None,
) -> dict[str, StreamFold]:
    """Fold; `before_last` is done after all was read, before the last stream is published."""
    task = FoldTask(spec, adopt)
    found = list(task.fold_streams(client, entries, lambda messages: before_last()))
    assert sorted(each.stream for each in found) == [entry.stream for entry in entries]
    return {each.stream: each for each in found}


def outcomes(found: dict[str, StreamFold]) -> dict[str, tuple[str, str | None]]:
    return {name: (each.outcome, each.code) for name, each in found.items()}


ALL_FOLDED = dict.fromkeys("abc", ("folded", None))


def test_streams_are_folded_and_continued(client: Client, bucket: Bucket) -> None:
    """The snapshot is at the planned tail and names its fold; later messages follow it."""
    entries = due(bucket)
    bucket.stream("a").append_json({"id": 2})
    found = run(client, entries)
    assert outcomes(found) == ALL_FOLDED
    assert found["a"].messages == 2
    assert found["a"].bytes_before == 2 * len(b'{"id":1,"n":1},')
    assert found["a"].bytes_after == len(b'[{"id":1,"n":2}]')
    boot = bucket.stream("a").bootstrap()
    assert boot.snapshot is not None
    assert boot.snapshot.data == b'[{"id":1,"n":2}]'
    assert boot.snapshot.content_type == 'application/json; fold="last-write-wins"; key="/id"'
    assert boot.snapshot.offset == found["a"].offset == entries[0].until
    assert boot.messages == [b'{"id":2}']
    (entry,) = due(bucket)
    assert outcomes(run(client, [entry])) == {"a": ("folded", None)}
    assert bucket.stream("a").snapshot().data == b'[{"id":1,"n":2},{"id":2}]'
    assert due(bucket) == []


def test_the_same_plan_twice_changes_nothing(client: Client, bucket: Bucket) -> None:
    """The start of the range is no longer retained, so the newer snapshot stays."""
    entries = due(bucket)
    run(client, entries)
    again = run(client, entries)
    assert outcomes(again) == dict.fromkeys("abc", ("superseded", "offset-gone"))


def test_two_tasks_at_once_publish_the_same_snapshot(client: Client, bucket: Bucket) -> None:
    """One is through while the other has read and is about to publish: no conflict."""
    entry = due(bucket)[0]
    inner = []
    found = run(client, [entry], before_last=lambda: inner.append(run(client, [entry])))
    assert outcomes(found) == outcomes(inner[0]) == {"a": ("folded", None)}


@pytest.mark.parametrize("later", [True, False])
def test_another_snapshot_at_the_same_offset_is_not_replaced(
    client: Client, bucket: Bucket, later: bool
) -> None:
    """X§2.2: a later one is 410, another one at the same offset 409."""

    def publish() -> None:
        stream = bucket.stream("c")
        if later:
            stream.append_json({"id": 3})
        stream.publish_snapshot(b"theirs", stream.head().next_offset, "text/plain")

    entries = due(bucket)
    found = run(client, entries, before_last=publish)
    code = "offset-gone" if later else "snapshot-conflict"
    assert outcomes(found) == {**ALL_FOLDED, "c": ("superseded", code)}
    assert bucket.stream("c").snapshot().data == b"theirs"


def test_a_newer_snapshot_is_not_replaced(client: Client, bucket: Bucket) -> None:
    run(client, due(bucket))
    bucket.stream("a").append_json({"id": 2})
    entries = due(bucket)
    stream = bucket.stream("a")
    stream.append_json({"id": 3})
    stream.publish_snapshot(b"theirs", stream.head().next_offset, "text/plain")
    assert run(client, entries)["a"].outcome == "superseded"
    assert stream.snapshot().data == b"theirs"


def test_streams_that_are_gone_do_not_stop_the_others(client: Client, bucket: Bucket) -> None:
    """Deleted; and deleted and created again, when it is shorter than the plan's."""
    entries = due(bucket)
    bucket.stream("a").delete()
    bucket.stream("b").delete()
    bucket.stream("b").create(JSON)
    found = run(client, entries)
    assert outcomes(found) == {
        "a": ("gone", "stream-not-found"),
        "b": ("gone", "offset-beyond-tail"),
        "c": ("folded", None),
    }


def test_a_stream_deleted_before_its_publication(client: Client, bucket: Bucket) -> None:
    found = run(client, due(bucket), before_last=bucket.stream("c").delete)
    assert outcomes(found) == {**ALL_FOLDED, "c": ("gone", "stream-not-found")}


def test_a_stream_that_was_replaced_after_its_snapshot(client: Client, bucket: Bucket) -> None:
    """The new stream has no snapshot: the old state must not be published in it."""
    run(client, due(bucket))
    bucket.stream("a").append_json({"id": 2})
    entries = due(bucket)
    bucket.stream("a").delete()
    refill(bucket, "a")
    bucket.stream("a").append_json({"id": 2})
    found = run(client, entries)
    assert outcomes(found) == {"a": ("gone", "snapshot-not-found")}
    assert bucket.stream("a").head().snapshot_offset is None


def test_the_offset_of_a_refused_message_is_reported(client: Client, bucket: Bucket) -> None:
    """Also after a snapshot; and the stream stays as it was."""
    run(client, due(bucket))
    for name in "ab":
        bucket.stream(name).append_json({"id": 2})
    where = bucket.stream("b").head().next_offset
    bucket.stream("b").append_json({"ID": 2}, {"id": 2})
    before = bucket.stream("b").bootstrap()
    found = run(client, due(bucket))
    assert outcomes(found) == {"a": ("folded", None), "b": ("failed", "message-refused")}
    assert found["b"].offset == where
    assert "id" in (found["b"].error or "")
    assert bucket.stream("b").bootstrap() == before


def test_a_snapshot_of_another_fold_is_an_error_unless_adopted(
    client: Client, bucket: Bucket
) -> None:
    """Another fold's, the same with another key, and something else's that is no state at all."""
    run(client, due(bucket, other := FoldSpec.of("last-write-wins", "n")), other)
    stream = bucket.stream("c")
    stream.append_json({"id": 5})
    stream.publish_snapshot(b"theirs", stream.head().next_offset, JSON)
    for name in "abc":
        bucket.stream(name).append_json({"id": 1})
    entries = due(bucket)
    found = run(client, entries)
    assert outcomes(found) == dict.fromkeys("abc", ("failed", "snapshot-foreign"))
    assert 'key="/n"' in (found["a"].error or "")
    adopted = run(client, entries, adopt=True)
    assert outcomes(adopted) == {**ALL_FOLDED, "c": ("failed", "state-refused")}
    assert bucket.stream("a").snapshot().data == b'[{"id":1}]'


def test_an_unreachable_server_fails_the_remaining_streams(
    server: ServerProcess, bucket: Bucket
) -> None:
    entries = due(bucket)
    server.kill()
    with Client(server.url, retry=Retry(attempts_max=2, first_s=0.01)) as impatient:
        found = run(impatient, entries)
    assert outcomes(found) == dict.fromkeys("abc", ("failed", "unreachable"))
    server.start()
    with Client(server.url) as client:
        assert outcomes(run(client, entries)) == ALL_FOLDED


def test_many_streams_of_many_pieces(client: Client) -> None:
    """Streams that end anywhere in a record batch, and some that take several."""
    bucket = client.bucket(BUCKET)
    bucket.create()
    sizes = {f"s{number:02}": 1 if number % 7 else 20_000 for number in range(30)}
    for name, size in sizes.items():
        bucket.stream(name).create(JSON)
        body = b",".join(b'{"n":"%s","id":%d}' % (b"x" * 60, at % 5) for at in range(size))
        bucket.stream(name).append(b"[" + body + b"]", JSON)
    found = run(client, due(bucket))
    assert {name: each.messages for name, each in found.items()} == sizes
    assert {each.outcome for each in found.values()} == {"folded"}


def rows(ranges: list[int], values: list[bytes]) -> pa.RecordBatch:
    arrays = [pa.array(ranges, pa.int32()), pa.array(values, pa.binary())]
    return pa.record_batch(arrays, names=["range", "value"])


def test_a_refused_message_of_a_later_piece(
    client: Client, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset counts from the stream's beginning, and not from that of the piece."""
    pieces = [rows([0], [b'{"id":1}']), rows([0], [b"7"])]
    monkeypatch.setattr(fold_task, "read_rows", lambda *_: iter(pieces))
    entry = due(bucket)[0]
    assert run(client, [entry])["a"].offset == "0000000000000001_0000000000000015"


def test_a_snapshot_that_came_after_the_messages_were_read_is_not_continued(
    client: Client, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new snapshot covers messages that were read: they would be folded twice."""
    spec = FoldSpec.of("concat")
    run(client, due(bucket, spec), spec)
    stream = bucket.stream("a")
    between = stream.append_json({"id": 3}).next_offset
    stream.append_json({"id": 4})
    entries = due(bucket, spec)
    theirs = stream.snapshot().data[:-1] + b',{"id":3}]'

    def read_then_publish(*arguments: Any) -> Iterator[Any]:
        found = list(read_rows(*arguments))
        stream.publish_snapshot(theirs, str(between), spec.snapshot_type(JSON))
        return iter(found)

    monkeypatch.setattr(fold_task, "read_rows", read_then_publish)
    assert outcomes(run(client, entries, spec)) == {"a": ("superseded", "snapshot-replaced")}
    assert stream.snapshot().data == theirs


CUT_OFF = RangeError(1, 410, "offset-gone", "a snapshot covers it", None)


@pytest.mark.parametrize(
    ("errors", "result"),
    [([CUT_OFF], ("superseded", "offset-gone")), ([], ("failed", "stream-incomplete"))],
)
def test_an_incomplete_stream_is_not_published(
    client: Client,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    errors: list[RangeError],
    result: tuple[str, str],
) -> None:
    """Messages of a stream are missing; the reason comes after the next stream, or never."""
    batch = rows([0, 0, 1, 2, 2], [b'{"id":1}'] * 5)
    monkeypatch.setattr(fold_task, "read_rows", lambda *_: iter([batch, *errors]))
    assert outcomes(run(client, due(bucket))) == {**ALL_FOLDED, "b": result}
    assert bucket.stream("b").head().snapshot_offset is None
