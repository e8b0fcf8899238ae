"""The job `mirror`: copies the streams of one server to another."""

from tailrace.spark.jobs.mirror.job import (
    PARTITIONS,
    MirrorChanged,
    MirrorResult,
    MirrorUnsupported,
    mirror,
)

__all__ = ["PARTITIONS", "MirrorChanged", "MirrorResult", "MirrorUnsupported", "mirror"]
