"""The job `materialize`: writes streams of JSON objects to a typed table."""

from tailrace.spark.jobs.materialize.job import materialize

__all__ = ["materialize"]
