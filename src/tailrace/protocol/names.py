"""
The names of buckets and streams (X§1.1), and the keys that they are stored under.

A key is `{bucket}\\0{stream}`: the streams of a bucket are adjacent, in the order of their ids as
bytes. The base surface has no buckets, so its keys begin with the NUL.
"""

import re
from typing import Final

from tailrace.protocol.errors import BucketInvalid, NameInvalid
from tailrace.protocol.limits import BUCKETED_KEY_BYTES_MAX, STREAM_ID_BYTES_MAX

__all__ = ["NO_BUCKET", "RESERVED", "STREAMS", "bucket_key", "bucket_of", "bucketed_stream_key"]

NO_BUCKET: Final = b"\0"
"""The first byte of the key of a stream on the base surface."""
STREAMS: Final = "streams"
"""The reserved stream id: it is the listing of a bucket."""
RESERVED: Final = "the stream id 'streams' is reserved for the listing of the bucket"

_SEPARATOR: Final = b"\0"
_BUCKET_ID: Final = re.compile(r"[a-z0-9_-]{4,64}", re.ASCII)


def bucket_key(bucket_id: str) -> bytes:
    """The key of a bucket. Raises BucketInvalid if its id is not valid."""
    # X§1.1: bucket_id MUST match ^[a-z0-9_-]{4,64}$.
    if not _BUCKET_ID.fullmatch(bucket_id):
        raise BucketInvalid(bucket_id[:80])
    return bucket_id.encode()


def bucketed_stream_key(bucket_id: str, stream_id: str) -> bytes:
    """
    The key of a stream in a bucket.

    Raises:
        BucketInvalid, NameInvalid: It is not a valid id.
    """
    bucket = bucket_key(bucket_id)
    name = stream_id.encode()
    # X§1.1: a stream_id MUST NOT contain `/`, NUL or `..`.
    if b"/" in name or b"\0" in name or b".." in name:
        raise NameInvalid("a stream id must not contain '/', NUL or '..'")
    if name in (b"", b"."):
        # URL libraries remove a single dot from a path.
        raise NameInvalid("a stream id must not be empty or '.'")
    if stream_id == STREAMS:
        raise NameInvalid(RESERVED)
    # X§1.1: both bounds count the bytes of UTF-8, after percent-decoding.
    if len(name) > STREAM_ID_BYTES_MAX:
        raise NameInvalid(f"a stream id may have {STREAM_ID_BYTES_MAX} bytes at most")
    if len(bucket) + 1 + len(name) > BUCKETED_KEY_BYTES_MAX:
        raise NameInvalid(
            f"bucket id, '/' and stream id may have {BUCKETED_KEY_BYTES_MAX} bytes together"
        )
    return bucket + _SEPARATOR + name


def bucket_of(key: bytes) -> bytes:
    """The bucket of a stream; empty on the base surface."""
    bucket, separator, _ = key.partition(_SEPARATOR)
    return bucket if separator else b""
