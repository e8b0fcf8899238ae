"""The job `replay`: sends the messages of an archived table to streams again."""

from tailrace.spark.jobs.replay.job import ReplayResult, replay
from tailrace.spark.jobs.replay.plan import (
    PARTITIONS,
    ReplayAmbiguous,
    ReplayChanged,
    ReplayUnsupported,
)

__all__ = [
    "PARTITIONS",
    "ReplayAmbiguous",
    "ReplayChanged",
    "ReplayResult",
    "ReplayUnsupported",
    "replay",
]
