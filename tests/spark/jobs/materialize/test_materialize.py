"""`materialize`: JSON streams as a typed table that grows, and dead letters beside it."""

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.client import Client
from tailrace.spark.jobs.materialize import materialize
from tailrace.spark.jobs.materialize.job import SchemaLog
from tailrace.spark.jobs.materialize.json_schema import Field, Struct
from tailrace.spark.jobs.stream_to_table import TableJobResult
from tailrace.spark.tables import BatchDiffers, SchemaInexact, TableShared, open_table
from tests.support.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "typed"


class Crash(Exception):
    """Raised at a step of a commit, to simulate a crash in the same JVM."""


def rows_of(spark: "SparkSession", path: Path, format: str) -> list[dict[str, Any]]:
    found = open_table(format, path).read(spark).collect()
    rows = [row.asDict(recursive=True) for row in found]
    return sorted(rows, key=lambda row: int(row["_message" if "_message" in row else "message"]))


@pytest.fixture
def append(client: Client) -> Any:
    client.bucket(BUCKET).create()
    stream = client.bucket(BUCKET).stream("events")
    stream.create("application/json")
    return stream.append_json


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "iceberg", "delta"])
def test_a_table_follows_its_messages(
    spark: "SparkSession", server: ServerProcess, client: Client, append: Any,
    tmp_path: Path, format: str,
) -> None:  # fmt: skip
    """
    Goal: columns come, nested ones too, long becomes double, and older rows keep what they had.
    """
    table = tmp_path / "table"

    def run() -> TableJobResult:
        return materialize(spark, url=server.url, bucket=BUCKET, table=table, format=format)

    append({"id": 1, "user": {"name": "x"}, "tags": ["a"]}, {"id": 2, "_stream": "mine"})
    assert run().rows == 2
    append({"id": 3, "ID": "three", "user": {"name": "y", "age": 7}, "tags": [1]})
    assert run().rows == 1
    append({"id": 4.5, "user": {"age": 8.5}})
    append([1, 2], 3)
    text = client.bucket(BUCKET).stream("text")
    text.create("text/plain")
    text.append("hello", "text/plain")
    last = run()
    assert (last.rows, last.dead_letters) == (1, 3)
    rows = rows_of(spark, table, format)
    assert [row["id"] for row in rows] == [1.0, 2.0, 3.0, 4.5]
    assert [row["user"] and (row["user"]["name"], row["user"]["age"]) for row in rows] == [
        ("x", None), None, ("y", 7.0), (None, 8.5),
    ]  # fmt: skip
    assert [row["tags"] for row in rows] == [["a"], None, None, None]
    assert [row["_rescued"] for row in rows] == [None, None, '{"tags":[1]}', None]
    assert [row["ID_2"] for row in rows] == [None, None, "three", None]
    assert rows[1]["_stream_2"] == "mine" and {row["_stream"] for row in rows} == {"events"}
    assert [row["_message"] for row in rows] == [0, 1, 2, 3]
    dead = rows_of(spark, tmp_path / "table-dead-letters", format)
    found = {(row["stream"], bytes(row["value"]), row["reason"]) for row in dead}
    no_object = "the message is JSON, but not an object"
    assert found == {
        ("events", b"[1,2]", no_object),
        ("events", b"3", no_object),
        ("text", b"hello", "the stream is not of JSON but of text/plain"),
    }
    assert all(row["bucket"] == BUCKET and row["offset"] for row in dead)


@pytest.mark.slow
def test_a_batch_that_failed_between_the_two_tables_is_completed(
    spark: "SparkSession", server: ServerProcess, append: Any, tmp_path: Path
) -> None:
    """The schema is kept from before the failure, and each table takes the batch once."""
    table = tmp_path / "table"

    def run(last: int) -> None:
        steps: list[str] = []

        def at(step: str) -> None:
            steps.append(step)
            if len(steps) == last:
                raise Crash(step)

        materialize(spark, url=server.url, bucket=BUCKET, table=table, at=at)

    append({"a": 1}, "dead")
    # The dead letters' files; their journal; then, once that is completed, the rows' first move.
    for last, step in ((1, "written"), (3, "journaled"), (7, "moved 0")):
        with pytest.raises(Crash, match=step):
            run(last)
    run(0)
    assert [(row["_message"], row["a"]) for row in rows_of(spark, table, "parquet")] == [(0, 1)]
    dead = rows_of(spark, tmp_path / "table-dead-letters", "parquet")
    assert [json.loads(bytes(row["value"])) for row in dead] == ["dead"]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "iceberg"])
def test_no_stored_integer_is_rounded(
    spark: "SparkSession", server: ServerProcess, append: Any, tmp_path: Path, format: str
) -> None:
    """Goal: a column stays long where doubles would round it; what is no integer is rescued."""
    table = tmp_path / "table"

    def run() -> None:
        materialize(spark, url=server.url, bucket=BUCKET, table=table, format=format)

    big, largest = 2**53 + 1, 2**63 - 1
    append({"id": big, "n": 2**53, "in": {"id": -big}, "list": [{"id": 1}, {"id": largest}]})
    append({"id": 1, "n": 2, "in": {"id": 3}, "list": []})
    run()
    append({"id": 1.5, "n": 2.5, "in": {"id": 3.5}, "list": [{"id": 4.50}], "new": 0.5}, {"id": 7})
    run()
    append({"id": 8.5, "n": 9})
    run()
    rows = rows_of(spark, table, format)
    assert [row["id"] for row in rows] == [big, 1, None, 7, None]
    assert [row["n"] for row in rows] == [2.0**53, 2.0, 2.5, None, 9.0]
    assert [row["in"] and row["in"]["id"] for row in rows] == [-big, 3, None, None, None]
    assert rows[0]["list"] == [{"id": 1}, {"id": largest}]
    assert rows[2]["new"] == 0.5
    rescued = [row["_rescued"] and json.loads(row["_rescued"]) for row in rows]
    assert rescued == [
        None, None, {"id": 1.5, "in": {"id": 3.5}, "list": [{"id": 4.5}]}, None, {"id": 8.5},
    ]  # fmt: skip


@pytest.mark.slow
def test_a_table_refuses_to_round_stored_integers(spark: "SparkSession", tmp_path: Path) -> None:
    """The table is not changed, whichever writer tries."""
    table = open_table("parquet", tmp_path / "table")
    table.commit(0, spark.sql("select named_struct('b', 9223372036854775807L) as a"))
    wider = spark.sql("select named_struct('b', 0.5D) as a")
    with pytest.raises(SchemaInexact, match=r"'a\.b' has integers beyond 2\^53") as refused:
        table.commit(1, wider)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    assert [row.a.b for row in table.read(spark).collect()] == [2**63 - 1]
    assert not table.committed(1)


@pytest.mark.slow
def test_dead_letters_need_another_table(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(TableShared, match="another directory"):
        materialize(spark, url="http://127.0.0.1:1", table=tmp_path, dead_letters=tmp_path)


def test_a_repeated_batch_has_its_stored_schema(tmp_path: Path) -> None:
    log = SchemaLog(tmp_path)
    one, two = (Struct((Field(name, name, "long"),)) for name in "ab")
    assert log.of("app", 0) == (Struct(), False)
    log.keep("app", 3, one)
    log.keep("other", 0, two)
    assert log.of("app", 3) == (one, True)
    assert log.of("app", 4) == (two, False)
    assert log.of("other", 0) == (two, True)


@pytest.mark.slow
def test_errors_of_a_batch_keep_their_class(
    spark: "SparkSession", server: ServerProcess, append: Any, tmp_path: Path
) -> None:
    """The error is not Spark's text of it."""

    def at(step: str) -> None:
        raise BatchDiffers("t", "app", 1)

    append({"a": 1})
    with pytest.raises(BatchDiffers, match="checkpoint is older"):
        materialize(spark, url=server.url, bucket=BUCKET, table=tmp_path / "table", at=at)
