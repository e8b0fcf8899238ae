"""Registers `format("tailrace")`: Spark searches top-level modules named `pyspark_*`."""

from tailrace.spark.source.data_source import TailraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
