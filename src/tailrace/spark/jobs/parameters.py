"""The parameters of jobs: one dataclass each, whose fields are the keyword arguments of the job."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from tailrace.spark.options import ConnectionOptions, data_source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StreamSelection", "takes"]

P = ParamSpec("P")
J = TypeVar("J")
R = TypeVar("R")


def takes(
    parameters: Callable[P, J],
) -> "Callable[[Callable[[SparkSession, J], R]], Callable[Concatenate[SparkSession, P], R]]":
    """A decorator: the job is called with the fields of its parameters as keyword arguments."""

    def decorate(
        run: "Callable[[SparkSession, J], R]",
    ) -> "Callable[Concatenate[SparkSession, P], R]":
        @wraps(run)
        def job(spark: "SparkSession", /, *args: P.args, **kwargs: P.kwargs) -> R:
            return run(spark, parameters(*args, **kwargs))

        spark, _ = signature(run).parameters.values()
        shown = [spark, *signature(parameters).parameters.values()]
        job.__signature__ = signature(run).replace(parameters=shown)  # type: ignore[attr-defined]
        return job

    return decorate


@dataclass(frozen=True, kw_only=True)
class StreamSelection(ConnectionOptions):
    """The streams of a server that a job reads."""

    bucket: str | None = None
    streams: tuple[str, ...] = ()
    prefix: str = ""
    pattern: str | None = None
    fail_on_data_loss: bool = True

    def describe(self) -> str:
        """The selection as text; a table keeps it."""
        where = "paths" if self.bucket is None else f"bucket {self.bucket}"
        chosen = [f"prefix {self.prefix}"] if self.prefix else []
        chosen += [f"pattern {self.pattern}"] if self.pattern else []
        chosen += [f"streams {', '.join(sorted(self.streams))}"] if self.streams else []
        return ", ".join([where, *chosen])

    def source_options(self, **more: object) -> dict[str, str]:
        """The options of the source."""
        return data_source_options(
            self,
            bucket=self.bucket,
            prefix=self.prefix,
            pattern=self.pattern,
            streams=json.dumps(self.streams) if self.streams else None,
            failOnDataLoss=str(self.fail_on_data_loss).lower(),
            **more,
        )
