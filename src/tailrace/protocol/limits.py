"""Limits on everything that a client can make the server store."""

from typing import Final

# Stored in every record that a producer writes, and once per producer in the stream's state.
PRODUCER_ID_BYTES_MAX: Final = 512
# §5.2.1: integers stay exact in JavaScript.
PRODUCER_INTEGER_MAX: Final = 2**53 - 1
STREAM_SEQ_BYTES_MAX: Final = 512
CONTENT_TYPE_BYTES_MAX: Final = 256
STREAM_NAME_BYTES_MAX: Final = 1024
# X§1.1, both of them.
STREAM_ID_BYTES_MAX: Final = 122
BUCKETED_KEY_BYTES_MAX: Final = 122
# Each message of an array takes up to a hundred bytes of memory while it is split.
JSON_MESSAGES_MAX: Final = 1_000_000
# 100 years: more is a typing error, and must not overflow a timestamp.
TTL_S_MAX: Final = 100 * 365 * 86_400
