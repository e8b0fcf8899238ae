"""How fast does Spark read streams, compared with files of JSON lines?

Rows of 230 bytes, all in one stream, and spread over many. The goal compares messages as they are,
all columns, with `spark.read.json(files)` as it is usually called, which infers the schema first.
Further rows: the files with a schema given, the value alone, and the messages typed by that schema.
The time counts from `load`. Every read must return as many rows as were written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import spark_data
from benchmarks.model import (
    OURS,
    AtLeast,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    Workload,
    exactly,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ONE = "one"
MANY = "many-"
FILES = 8


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Write, read in every variant, count."""
    outcome = Outcome()
    total = sizes.spark_messages
    spark_data.make_bucket(server)
    spark_data.fill_one(server, ONE, total)
    each = total // sizes.spark_streams
    spark_data.make_streams(server, _many(sizes.spark_streams, each))
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-json-") as directory:
        write_files(Path(directory), total)
        variants = _variants(server, directory)
        for name, variant in variants.items():
            rows = each * sizes.spark_streams if name == "many" else total
            # The count is also the warm-up.
            outcome.checks.append(exactly(f"rows, {name}", rows, variant().count()))
            seconds = spark_data.spent(variant)
            outcome.metrics[f"{name}_per_s"] = rows / seconds
            outcome.metrics[f"{name}_mb_s"] = rows * len(spark_data.message(0)) / seconds / 1e6
            progress(f"{name}: {rows / seconds:,.0f} rows/s")
    for name in ("one", "many", "value", "typed"):
        ratio = outcome.metrics[f"{name}_per_s"] / outcome.metrics["files_per_s"]
        outcome.metrics[f"{name}_ratio"] = ratio
    return outcome


def _variants(server: Server, directory: str) -> dict[str, Callable[[], DataFrame]]:
    read = spark_data.session().read
    return {
        "files": lambda: read.json(directory),
        "schema": lambda: read.schema(spark_data.SCHEMA).json(directory),
        "one": lambda: spark_data.read(server, stream=ONE),
        "many": lambda: spark_data.read(server, prefix=MANY),
        "value": lambda: _with_schema(server, "value string"),
        "typed": lambda: _with_schema(server, spark_data.SCHEMA),
    }


def _with_schema(server: Server, schema: str) -> DataFrame:
    reader = spark_data.session().read.format("tailrace").schema(schema)
    return reader.options(
        url=spark_data.url_of(server), bucket=spark_data.BUCKET, stream=ONE
    ).load()


def _many(streams: int, each: int) -> Iterator[tuple[str, bytes]]:
    for number in range(streams):
        yield f"{MANY}{number:06d}", spark_data.body(range(number * each, (number + 1) * each))


def write_files(directory: Path, total: int) -> None:
    for part in range(FILES):
        with (directory / f"part-{part}.json").open("wb") as file:
            numbers = range(part * total // FILES, (part + 1) * total // FILES)
            file.writelines(spark_data.message(number) + b"\n" for number in numbers)


WORKLOAD = Workload(
    name="spark_read",
    question="How fast does Spark read streams, compared with files?",
    run=run,
    rows=(
        Row("files_per_s", "spark.read.json of files", "/s", True),
        Row("schema_per_s", "the same with a schema given", "/s", True),
        Row("one_per_s", "read, one stream", "/s", True),
        Row("one_mb_s", "the same, in bytes", "MB/s", True),
        Row("one_ratio", "the same / files", "x", True, (AtLeast(2),)),
        Row("many_per_s", "read, many streams", "/s", True),
        Row("many_ratio", "the same / files", "x", True, (AtLeast(2),)),
        Row("value_per_s", "read, one stream, the value alone as text", "/s", True),
        Row("value_ratio", "the same / files", "x", True),
        Row("typed_per_s", "read, one stream, typed by that schema", "/s", True),
        Row("typed_ratio", "the same / files", "x", True),
    ),
    peers=(OURS,),
)
