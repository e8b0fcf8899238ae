"""Failures of Spark jobs: the Python error in the text that Spark raises."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

import pytest

import tailrace.client
import tailrace.spark
from tailrace.cli.connection import Location, Server
from tailrace.cli.failures import Failure
from tailrace.cli.pipeline.spark_errors import find_python_error, job_failure
from tailrace.client import NotFound, Unreachable
from tailrace.exceptions import ExitCode

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

CLIENT_CODES = {
    "NotFound": ExitCode.NOT_FOUND,
    "StreamClosed": ExitCode.CONFLICT,
    "ProducerFenced": ExitCode.CONFLICT,
    "Unauthorized": ExitCode.UNAUTHORIZED,
    "Unreachable": ExitCode.UNREACHABLE,
    "OffsetGone": ExitCode.GONE,
}
TABLE_CODES = {
    **dict.fromkeys(("FormatUnknown", "PathAwkward", "PathUnsupported"), ExitCode.USAGE),
    "TableMissing": ExitCode.NOT_FOUND,
    **dict.fromkeys(
        (
            *("BatchDiffers", "CheckpointTaken", "SchemaConflict", "SchemaInexact"),
            *("SourceChanged", "SourceTaken", "TableBusy", "TableMismatch", "TableShared"),
        ),
        ExitCode.CONFLICT,
    ),
}
SPARK_CODES = {
    **dict.fromkeys(("FoldInvalid", "OptionInvalid"), ExitCode.USAGE),
    **dict.fromkeys(("BucketMissing", "StreamMissing", "StreamVanished"), ExitCode.NOT_FOUND),
    **dict.fromkeys(("MirrorChanged", "ReplayAmbiguous", "ReplayChanged"), ExitCode.CONFLICT),
    **dict.fromkeys(("SinkClosed", "SinkFenced", "SinkGap", "TypeConflict"), ExitCode.CONFLICT),
    "SinkUnauthorized": ExitCode.UNAUTHORIZED,
    **dict.fromkeys(("MessagesGone", "StreamGone", "StreamReplaced"), ExitCode.GONE),
}


def class_named(name: str, package: ModuleType) -> type:
    """The exception of a package, whichever of its modules defines it."""
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        found = getattr(import_module(info.name), name, None)
        if isinstance(found, type) and found.__module__ == info.name:
            return found
    raise AssertionError(f"no class {name} in {package.__name__}")


def failure_of(error: Exception) -> Failure:
    return job_failure(error, Location(Server("http://x", 1.0, None, {}), "", "shop"))


@pytest.mark.parametrize(
    ("package", "codes"),
    [(tailrace.client, CLIENT_CODES), (tailrace.spark, TABLE_CODES), (tailrace.spark, SPARK_CODES)],
    ids=["client", "tables", "spark"],
)
def test_the_last_python_error_is_reported_with_the_code_of_its_class(
    package: ModuleType, codes: dict[str, ExitCode]
) -> None:
    found = {}
    for name in codes:
        kind = class_named(name, package)
        text = TASK.format(kind=f"{kind.__module__}.{name}", text="the message")
        failure = failure_of(RuntimeError(text))
        assert failure.message == "the message"
        found[name] = failure.code
    assert found == codes


def test_a_class_that_does_not_exist_has_the_general_code() -> None:
    failure = failure_of(RuntimeError(TASK.format(kind="tailrace.no.such.Error", text="gone")))
    assert (failure.message, failure.code) == ("gone", ExitCode.FAILED)


def test_another_packages_error_is_reported_with_its_class() -> None:
    failure = failure_of(RuntimeError(TASK.format(kind="ZeroDivisionError", text="by zero")))
    assert (failure.message, failure.code) == ("ZeroDivisionError: by zero", ExitCode.FAILED)
    assert "--verbose" in failure.hint


def test_a_text_without_a_python_error() -> None:
    assert find_python_error("java.lang.OutOfMemoryError\n\tat x") is None
    failure = failure_of(RuntimeError("\n  the heap is full\n\tat x"))
    assert (failure.message, failure.code) == ("the heap is full", ExitCode.FAILED)


def test_the_python_error_may_be_in_an_inner_error() -> None:
    error = RuntimeError("writing failed")
    error.__cause__ = RuntimeError(TASK.format(kind="KeyError", text="'x'"))
    assert failure_of(error).message == "KeyError: 'x'"


def test_errors_of_the_driver_are_reported_as_in_other_commands() -> None:
    missing = failure_of(NotFound(404, "http://x", "bucket-not-found"))
    assert (missing.message, missing.code) == ("shop: no such bucket (404)", ExitCode.NOT_FOUND)
    away = failure_of(Unreachable("http://x", "refused"))
    assert away.code == ExitCode.UNREACHABLE
