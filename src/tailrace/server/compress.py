"""
Content codings for answers above 1 KiB.

Levels are the quick ones: a stream's answer is compressed for one reader, often once.
"""

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import brotli
import zstandard

__all__ = ["COMPRESS_BYTES_MIN", "compress", "negotiate"]

COMPRESS_BYTES_MIN: Final = 1024


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def _deflate(body: bytes) -> bytes:
    return zlib.compress(body, 1)


def _brotli(body: bytes) -> bytes:
    packed: bytes = brotli.compress(body, quality=3)
    return packed


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(body)


# The order is our preference among those that a client likes equally.
_CODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "zstd": _zstd,
    "br": _brotli,
    "gzip": _gzip,
    "deflate": _deflate,
}


def compress(coding: str, body: bytes) -> bytes:
    return _CODINGS[coding](body)


@lru_cache(maxsize=256)
def negotiate(accept: bytes) -> str | None:
    """The coding that an Accept-Encoding header likes best, or None for the body as it is."""
    weights: dict[str, float] = {}
    for item in accept.decode("latin-1").lower().split(","):
        name, _, parameters = item.partition(";")
        weight = 1.0
        key, _, value = parameters.strip().partition("=")
        if key.strip() == "q":
            try:
                weight = float(value)
            except ValueError:
                weight = 0.0
        weights[name.strip()] = weight
    other = weights.get("*", 0.0)
    best, best_weight = None, 0.0
    for coding in _CODINGS:
        weight = weights.get(coding, other)
        if weight > best_weight:
            best, best_weight = coding, weight
    return best
