"""The measurements, in the order in which they are made."""

from __future__ import annotations

from benchmarks.model import Work
from benchmarks.works import (
    appends,
    bootstrap,
    catchup,
    client_producer,
    client_tail,
    collapse,
    creates,
    growth,
    hostile,
    json_batches,
    large_snapshot,
    listing,
    many_streams,
    spark_archive,
    spark_fold,
    spark_planning,
    spark_read,
    spark_write,
    sse_fanout,
)

WORKS: tuple[Work, ...] = (
    appends.WORK,
    json_batches.WORK,
    catchup.WORK,
    sse_fanout.WORK,
    collapse.WORK,
    creates.WORK,
    growth.WORK,
    bootstrap.WORK,
    large_snapshot.WORK,
    listing.WORK,
    hostile.WORK,
    many_streams.WORK,
    client_producer.WORK,
    client_tail.WORK,
    spark_read.WORK,
    spark_write.WORK,
    spark_fold.WORK,
    spark_archive.WORK,
    spark_planning.WORK,
)
