"""Where Spark finds `format("tailrace")`: it looks through top-level modules named `pyspark_*`."""

from tailrace.spark.source.data_source import TailraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
