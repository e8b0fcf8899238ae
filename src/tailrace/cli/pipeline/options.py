"""
Options that the pipeline commands share, and how they run their jobs.

An option of `job_options` is named after the keyword argument of the job's function that gets its
value. Options that are not given are not passed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.connection import Command, Location, Server, server_options
from tailrace.cli.parameters import BUCKET_OR_EMPTY, SECONDS, SETTING, TEXT, count_option
from tailrace.cli.pipeline.spark_runner import VERBOSE_VARIABLE, SparkRunner
from tailrace.cli.progress import JobProgress, progress_option, show_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "FOLLOWING",
    "FORMAT",
    "PARTITIONS",
    "SELECTION",
    "TABLE",
    "Job",
    "Options",
    "job_options",
    "target_bucket_option",
]

Options = Mapping[str, Callable[[Command], Command]]

SELECTION: Final[Options] = {
    "prefix": click.option(
        "--prefix", default="", type=TEXT, help="Only streams whose names begin with this."
    ),
    "pattern": click.option(
        "--pattern", type=TEXT, help="Only streams whose names match this, such as 'orders-*'."
    ),
}

FORMAT: Final[Options] = {
    "format": click.option(
        "--format",
        type=click.Choice(["parquet", "iceberg", "delta"]),
        default="parquet",
        show_default=True,
        help="Format of the table.",
    )
}

TABLE: Final[Options] = {
    **FORMAT,
    "checkpoint": click.option(
        "--checkpoint",
        type=TEXT,
        metavar="DIR",
        help="Directory that stores the progress.  [default: in the table's directory]",
    ),
    "compact_files": count_option(
        "--compact-files", least=0, help="Merge small files when a day has this many; 0: never."
    ),
}

PARTITIONS: Final[Options] = {
    "partitions": click.option(
        "--partitions",
        type=click.IntRange(1, 10_000),
        metavar="N",
        help="Number of producers.  [default: 8, or that of the last run]",
    )
}

FOLLOWING: Final[Options] = {
    "every_s": click.option(
        "--every",
        "every_s",
        type=SECONDS,
        metavar="SECONDS",
        help="Run until stopped, with a batch this often.",
    ),
    "max_messages": count_option(
        "--max-messages", help="Read at most this many messages per batch."
    ),
    "fail_on_data_loss": click.option(
        "--ignore-data-loss",
        "fail_on_data_loss",
        is_flag=True,
        callback=lambda ctx, param, value: not value,
        help="Continue if streams or messages were deleted before they were read.",
    ),
}

target_bucket_option = click.option(
    "--target-bucket",
    default="",
    type=BUCKET_OR_EMPTY,
    metavar="BUCKET",
    help="The bucket to write to.  [default: the same as that of the source]",
)

_RUNNER: Final = (
    click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Where Spark runs: this machine, or a cluster.",
    ),
    click.option(
        "--conf",
        multiple=True,
        type=SETTING,
        metavar="NAME=VALUE",
        help="A setting of Spark. Repeatable.",
    ),
    click.option(
        "--verbose",
        is_flag=True,
        envvar=VERBOSE_VARIABLE,
        show_envvar=True,
        help="Show the output of Spark, and stack traces.",
    ),
    click.option(
        "--dry-run", is_flag=True, help="Print what would be read and written, and change nothing."
    ),
    progress_option,
)


@dataclass(frozen=True)
class Job:
    """One run of a job."""

    name: str
    server: Server
    runner: SparkRunner
    dry_run: bool
    progress: bool | None
    arguments: dict[str, Any]
    """Keyword arguments of the job's function."""

    def function(self) -> Callable[..., Any]:
        """`tailrace.spark.jobs.NAME.NAME`, which needs Spark's libraries."""
        module = import_module(f"tailrace.spark.jobs.{self.name}")
        function: Callable[..., Any] = getattr(module, self.name)
        return function

    @contextmanager
    def session(
        self, subject: str, total: int | None = None
    ) -> Iterator[tuple["SparkSession", JobProgress]]:
        """
        A Spark session, and the progress that is shown while it runs.

        Raises:
            Failure: The job failed; `subject` is named in the message.
        """
        wanted = False if self.dry_run else self.progress
        with (
            show_progress(JobProgress(self.name, total), wanted) as shown,
            self.runner.running(self.name, Location(self.server, "", subject)) as spark,
        ):
            yield spark, shown

    def run(self, subject: str, total: int | None, count: Callable[[Any], int], **more: Any) -> Any:
        """Run the job in a session of its own: see `session` and `run_in`."""
        expected = None if "every_s" in self.arguments else total
        with self.session(subject, expected) as (spark, shown):
            return self.run_in(spark, shown, count, **more)

    def run_in(
        self, spark: "SparkSession", shown: JobProgress, count: Callable[[Any], int], **more: Any
    ) -> Any:
        """Run the job; `count` returns the number of messages from its result."""
        from tailrace.spark.progress import watching

        with watching(spark, shown, shown.total):
            done = self.function()(spark, **self.arguments, **more)
        shown(count(done))
        return done


def job_options(name: str, *groups: Options) -> Callable[[Command], Command]:
    """The options of a pipeline command, which gets `job`."""
    options = {key: option for group in groups for key, option in group.items()}

    def decorate(command: Command) -> Command:
        @server_options
        @wraps(command)
        def run(
            *args: Any,
            server: Server,
            master: str,
            conf: tuple[tuple[str, str], ...],
            verbose: bool,
            dry_run: bool,
            progress: bool | None,
            **kwargs: Any,
        ) -> None:
            given = {key: kwargs.pop(key) for key in options}
            arguments = {
                "url": server.url,
                "headers": server.headers,
                "timeout_s": server.timeout_s,
                **{key: value for key, value in given.items() if value is not None},
            }
            runner = SparkRunner(master, dict(conf), verbose)
            job = Job(name, server, runner, dry_run, progress, arguments)
            command(*args, job=job, **kwargs)

        shared: list[Callable[[Command], Command]] = [*options.values(), *_RUNNER]
        decorated: Command = run
        for option in reversed(shared):
            decorated = option(decorated)
        return decorated

    return decorate
