"""Complete and truncated input of a task."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tailrace.spark.sink.complete_input import complete_input
from tailrace.spark.sink.errors import InputTruncated

# `pyspark.worker` as far as it matters: whose `main` has what it reads from.
_MAIN = "def main(infile, outfile, work):\n    return work()\n"


def as_worker(follows: bytes, work: Callable[[], Any]) -> Any:
    module: dict[str, Any] = {"__name__": "pyspark.worker"}
    exec(_MAIN, module)
    return module["main"](io.BufferedReader(io.BytesIO(follows)), None, work)


def test_complete_rows_are_accepted() -> None:
    assert as_worker(b"\xff\xff\xff\xfc", lambda: list(complete_input([1, 2]))) == [1, 2]


def test_a_connection_that_ends_after_the_rows_is_an_error() -> None:
    def work() -> Iterator[int]:
        rows = complete_input([1, 2])
        assert [next(rows), next(rows)] == [1, 2]
        return rows

    with pytest.raises(InputTruncated, match="ended early"):
        as_worker(b"", lambda: list(work()))


def test_an_unknown_connection_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="does not let a sink see"):
        list(complete_input([1]))
