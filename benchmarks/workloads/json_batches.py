"""How many JSON messages per second can one writer append in batches?

One connection posts arrays of 1,000 messages of 190 bytes each and waits for
each response. The server has to check and split every array.
"""

from __future__ import annotations

import time

from benchmarks.batches import CONTENT_TYPE, MESSAGES, batch_request, count_messages
from benchmarks.blocking import Connection, make_request
from benchmarks.model import (
    REFERENCE_FILE,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    TimesBetter,
    Workload,
    exactly,
)


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Post the batches, then count the messages by reading them back."""
    with Connection(server.host, server.port) as connection:
        for path, batches in (
            ("json-warm", sizes.json_warm_up_batches),
            ("json-batches", sizes.json_batches),
        ):
            connection.expect(201, make_request("PUT", path, content_type=CONTENT_TYPE))
            request = batch_request(path)
            before = time.perf_counter()
            for _ in range(batches):
                connection.expect(204, request)
            seconds = time.perf_counter() - before
        rate = sizes.json_batches * MESSAGES / seconds
        progress(f"{rate:,.0f} messages/s")
        found, _ = count_messages(connection, "json-batches")
    return Outcome(
        {"messages_per_second": rate},
        [exactly("messages read back", sizes.json_batches * MESSAGES, found)],
    )


WORKLOAD = Workload(
    name="json_batches",
    question="How many JSON messages per second can one writer append in batches?",
    run=run,
    rows=(
        Row(
            "messages_per_second",
            "JSON messages in batches of 1,000",
            "/s",
            True,
            (TimesBetter(REFERENCE_FILE, 5),),
        ),
    ),
)
