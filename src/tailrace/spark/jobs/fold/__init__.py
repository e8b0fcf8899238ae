"""The job `fold`: publishes the state of each stream as its snapshot."""

from tailrace.spark.jobs.fold.job import fold
from tailrace.spark.jobs.fold.results import FoldResult, StreamFold

__all__ = ["FoldResult", "StreamFold", "fold"]
