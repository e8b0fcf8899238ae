"""The workloads, in the order of their measurement."""

from __future__ import annotations

from benchmarks.model import Workload
from benchmarks.workloads import (
    appends,
    bootstrap,
    catchup,
    client_producer,
    client_tail,
    collapse,
    creates,
    forks,
    growth,
    hostile,
    json_batches,
    large_snapshot,
    listing,
    many_streams,
    slow_readers,
    spark_archive,
    spark_fold,
    spark_planning,
    spark_read,
    spark_write,
    sse_fanout,
    subscriptions,
)

WORKLOADS: tuple[Workload, ...] = (
    appends.WORKLOAD,
    json_batches.WORKLOAD,
    catchup.WORKLOAD,
    slow_readers.WORKLOAD,
    sse_fanout.WORKLOAD,
    collapse.WORKLOAD,
    creates.WORKLOAD,
    growth.WORKLOAD,
    bootstrap.WORKLOAD,
    forks.WORKLOAD,
    large_snapshot.WORKLOAD,
    listing.WORKLOAD,
    hostile.WORKLOAD,
    many_streams.WORKLOAD,
    subscriptions.WORKLOAD,
    client_producer.WORKLOAD,
    client_tail.WORKLOAD,
    spark_read.WORKLOAD,
    spark_write.WORKLOAD,
    spark_fold.WORKLOAD,
    spark_archive.WORKLOAD,
    spark_planning.WORKLOAD,
)
