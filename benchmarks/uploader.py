"""Uploads snapshots, in its own process.

    python -m benchmarks.uploader HOST PORT BYTES

Prints ``uploading`` when the first upload has begun, uploads one snapshot after
the other until standard input ends, and then prints one JSON line: bytes,
seconds, and the offset and SHA-256 of the last snapshot.
"""

from __future__ import annotations

import hashlib
import json
import random
import select
import sys
import time

from benchmarks.blocking import Connection, make_request

BUCKET = "bench"
STREAM = f"{BUCKET}/large"
CONTENT_TYPE = "application/octet-stream"
PIECE_BYTES = 1 << 20


def main() -> int:
    """Upload until standard input ends."""
    host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    piece = random.Random(1).randbytes(PIECE_BYTES)
    digest = hashlib.sha256()
    for _ in range(size // PIECE_BYTES):
        digest.update(piece)
    uploads = 0
    with Connection(host, port) as connection:
        connection.expect(201, make_request("PUT", BUCKET, root="/"))
        connection.expect(201, make_request("PUT", STREAM, content_type=CONTENT_TYPE, root="/"))
        began = time.perf_counter()
        while not uploads or not select.select([sys.stdin], [], [], 0)[0]:
            append = make_request("POST", STREAM, content_type=CONTENT_TYPE, body=b"x", root="/")
            offset = connection.expect(204, append).headers["stream-next-offset"]
            head = f"PUT /{STREAM}/snapshot/{offset} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            connection.send(f"{head}Content-Length: {size}\r\n\r\n".encode())
            if not uploads:
                print("uploading", flush=True)
            for _ in range(size // PIECE_BYTES):
                connection.send(piece)
            connection.expect(204, b"")
            uploads += 1
        seconds = time.perf_counter() - began
    found = {"bytes": uploads * size, "seconds": seconds, "offset": offset}
    print(json.dumps({**found, "sha256": digest.hexdigest()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
