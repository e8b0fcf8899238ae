"""Errors of Spark, down to what failed; and how far a job is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.cli.failures import ExitCode
from tailrace.cli.pipeline import causes
from tailrace.cli.pipeline.bar import Bar, Messages
from tailrace.cli.pipeline.causes import cause_in, failure_of
from tailrace.client import NotFound, Unreachable
from tailrace.spark import folds, options
from tailrace.spark.jobs import mirror
from tailrace.spark.jobs.replay import plan as replay_plan
from tailrace.spark.progress import estimate
from tailrace.spark.sink import errors
from tailrace.spark.source import errors as loss
from tailrace.spark.tables import errors as tables

TASK = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage \
failure: Task 0 in stage 1.0 failed 4 times: org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
tailrace.client.errors.Unreachable: http://127.0.0.1:9: refused

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "source.py", line 7, in read
    raise MessagesGone("s", "-1")
{kind}: {text}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Caused by: something else: not this
"""


@pytest.mark.parametrize(
    ("kind", "text", "code"),
    [
        ("tailrace.client.errors.NotFound", "404 at http://x: gone", ExitCode.NOT_FOUND),
        ("tailrace.client.errors.StreamClosed", "409 at http://x: closed", ExitCode.CONFLICT),
        ("tailrace.client.errors.Unauthorized", "401 at http://x: who?", ExitCode.UNAUTHORIZED),
        ("tailrace.client.errors.Unreachable", "http://x: refused", ExitCode.UNREACHABLE),
        ("tailrace.spark.source.errors.MessagesGone", "stream 's' has no messages", ExitCode.GONE),
        ("tailrace.spark.sink.errors.SinkClosed", "the stream is closed", ExitCode.CONFLICT),
        ("tailrace.spark.options.OptionInvalid", "option 'x' is not known", ExitCode.USAGE),
        ("tailrace.no.such.Error", "what", ExitCode.FAILED),
    ],
)
def test_the_last_error_of_python_is_what_is_told(kind: str, text: str, code: ExitCode) -> None:
    failure = failure_of(RuntimeError(TASK.format(kind=kind, text=text)), "bucket")
    assert (failure.message, failure.code) == (text, code)


def test_an_error_of_somebody_elses_is_told_with_its_class() -> None:
    failure = failure_of(RuntimeError(TASK.format(kind="ZeroDivisionError", text="by zero")), "b")
    assert (failure.message, failure.code) == ("ZeroDivisionError: by zero", ExitCode.FAILED)
    assert "--verbose" in failure.hint


def test_a_text_without_an_error_of_python() -> None:
    assert cause_in("java.lang.OutOfMemoryError\n\tat x") is None
    failure = failure_of(RuntimeError("\n  the heap is full\n\tat x"), "b")
    assert (failure.message, failure.code) == ("the heap is full", ExitCode.FAILED)


def test_the_cause_may_be_told_by_an_inner_error() -> None:
    error = RuntimeError("writing failed")
    error.__cause__ = RuntimeError(TASK.format(kind="KeyError", text="'x'"))
    assert failure_of(error, "b").message == "KeyError: 'x'"


def test_errors_of_the_driver_are_explained_as_everywhere() -> None:
    missing = failure_of(NotFound(404, "http://x", "bucket-not-found"), "shop")
    assert (missing.message, missing.code) == ("shop: no such bucket (404)", ExitCode.NOT_FOUND)
    away = failure_of(Unreachable("http://x", "refused"), "shop")
    assert away.code == ExitCode.UNREACHABLE


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_left_goes_by_what_was_done_since_spark_runs() -> None:
    clock = Clock()
    messages = Messages("fold", 1000, clock)
    assert messages.parts() == ["starting Spark"]
    clock.now += 30
    messages(0)
    clock.now += 10
    messages(250)
    assert messages.parts() == ["250 of 1,000 messages", "25/s"]
    assert messages.left == "0:00:30 left"
    messages(100)
    assert messages.done == 250
    messages(1000)
    assert messages.left == ""


@pytest.mark.parametrize("room", [5, 30, 60, 119])
def test_a_bar_keeps_to_its_room(room: int) -> None:
    clock = Clock()
    bar = Bar("materialize", 1_000_000, clock)
    Messages.__call__(bar, 0)
    clock.now += 7
    Messages.__call__(bar, 500_000)
    line = bar.line(room)
    assert len(line) <= room
    if room == 119:
        assert line == (
            "materialize   50%  [##########----------]  0:00:07 left  "
            "500,000 of 1,000,000 messages, 71,429/s"
        )


def test_messages_of_a_batch_that_runs_are_estimated() -> None:
    assert estimate(100, 1000, 1, 4) == 325
    assert estimate(100, None, 1, 4) == 100
    assert estimate(100, 1000, 0, 0) == 100
    assert estimate(1200, 1000, 1, 4) == 1200


def test_every_error_that_has_a_code_is_there() -> None:
    modules = (folds, mirror, loss, options, replay_plan, errors, tables)
    there = {name for module in modules for name in vars(module)}
    assert set(causes._CODES_BY_NAME) <= there


def test_the_module_of_every_job_has_its_name() -> None:
    from tailrace.cli import pipeline

    found = {file.stem for file in Path(pipeline.__path__[0]).glob("*.py")}
    assert set(pipeline._JOBS) <= found
