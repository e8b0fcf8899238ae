"""The content of a server: every message of a bucket, and the bytes of every stream."""

from typing import NamedTuple

from tailrace.client import Client, Stream, StreamName
from tailrace.spark.rows import Range, RangeError, read_rows


class Content(NamedTuple):
    """A stream: its type, its messages as rows, and the bytes of a catch-up read."""

    content_type: str
    messages: list[bytes]
    read: object


def contents(client: Client, bucket: str) -> dict[str, Content]:
    """Every stream of a bucket, by `POST /-/rows` and by plain reads."""
    listed = list(client.bucket(bucket).streams())
    ranges = [
        Range(StreamName(bucket, found.stream_id), "-1", str(found.next_offset)) for found in listed
    ]
    messages: list[list[bytes]] = [[] for _ in ranges]
    for batch in read_rows(client, ranges, ["range", "message", "value"]):
        assert not isinstance(batch, RangeError), batch
        for row in batch.to_pylist():
            assert row["message"] == len(messages[row["range"]]), "in order, without a gap"
            messages[row["range"]].append(row["value"])
    return {
        found.stream_id: Content(
            found.content_type, of, _read(client.bucket(bucket).stream(found.stream_id))
        )
        for found, of in zip(listed, messages, strict=True)
    }


def _read(stream: Stream) -> object:
    # Where chunks of JSON end is the server's affair; of others, there is but the bytes.
    if stream.head().content_type == "application/json":
        return [item.value for item in stream.read_json()]
    return stream.read_all().data
