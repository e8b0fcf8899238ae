"""
Folds: pure functions from the messages of a stream to its state.

They use neither Spark nor HTTP nor a clock. `tailrace.spark.jobs.fold` runs them over a bucket.
"""

from tailrace.spark.folds.base import Fold, FoldInvalid, MessageRefused, StateRefused
from tailrace.spark.folds.spec import FOLDS, FoldSpec

__all__ = ["FOLDS", "Fold", "FoldInvalid", "FoldSpec", "MessageRefused", "StateRefused"]
