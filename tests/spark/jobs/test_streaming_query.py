"""A query whose Python worker did not start in time is started again."""

from typing import Any

import pytest

from tailrace.spark.jobs import streaming_query
from tailrace.spark.jobs.streaming_query import STARTS_MAX, run_query

LATE = RuntimeError("[STREAM_FAILED] Query terminated: Python worker failed to connect back. X")


class FakeWriter:
    """A writer and its queries."""

    def __init__(self) -> None:
        self.started = 0
        self.stopped = 0

    def option(self, name: str, value: str) -> "FakeWriter":
        assert (name, value) == ("checkpointLocation", "/checkpoint")
        return self

    def trigger(self, **options: Any) -> "FakeWriter":
        self.options = options
        return self

    def start(self) -> "FakeWriter":
        self.started += 1
        return self

    def stop(self) -> None:
        self.stopped += 1


def run(failures: list[Exception], every_s: float | None = None) -> tuple[FakeWriter, str]:
    writer = FakeWriter()

    def follow(query: Any) -> str:
        if writer.started <= len(failures):
            raise failures[writer.started - 1]
        return "done"

    return writer, run_query(writer, "/checkpoint", every_s, follow)  # type: ignore[arg-type]


def test_a_late_worker_is_retried_and_each_query_stopped() -> None:
    writer, result = run([LATE, LATE])
    assert (result, writer.started, writer.stopped) == ("done", 3, 3)


def test_other_errors_and_too_many_starts_are_raised() -> None:
    with pytest.raises(ValueError, match="other"):
        run([ValueError("other")])
    with pytest.raises(RuntimeError, match="connect back"):
        run([LATE] * STARTS_MAX)


def test_triggers() -> None:
    assert run([])[0].options == {"availableNow": True}
    assert run([], 0.25)[0].options == {"processingTime": "250 milliseconds"}
    assert streaming_query.POLL_INTERVAL_S < 1
