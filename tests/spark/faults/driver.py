"""
A driver in a process of its own, to be killed with its Java and its Python workers.

    python -m tests.spark.faults.driver query '{pipeline as JSON}'
    python -m tests.spark.faults.driver batch '{pipeline as JSON}' {count}

`query` runs a streaming query until all that there is is through; `batch` writes numbers once.
"""

import sys
from pathlib import Path

import msgspec

from tailrace.spark.session import new_session
from tests.spark.faults.pipeline import Pipeline
from tests.spark.faults.writing import write_numbers


def main(kind: str, pipeline: Pipeline, count: int) -> None:
    scratch = Path(pipeline.checkpoint).parent
    spark = new_session(
        "faults",
        "local[2]",
        {
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "3",
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        },
    )
    if kind == "batch":
        write_numbers(spark, pipeline, count)
    else:
        pipeline.run(spark)
    spark.stop()


if __name__ == "__main__":
    found = msgspec.json.decode(sys.argv[2], type=Pipeline)
    main(sys.argv[1], found, int(sys.argv[3]) if len(sys.argv) > 3 else 0)
