"""The measurements, in the order in which they are made."""

from __future__ import annotations

from benchmarks.model import Work
from benchmarks.works import (
    appends,
    catchup,
    creates,
    growth,
    json_batches,
    many_streams,
    sse_fanout,
)

WORKS: tuple[Work, ...] = (
    appends.WORK,
    json_batches.WORK,
    catchup.WORK,
    sse_fanout.WORK,
    creates.WORK,
    growth.WORK,
    many_streams.WORK,
)
