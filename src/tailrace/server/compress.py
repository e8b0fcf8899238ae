"""
Content codings for responses above 1 KiB.

The levels are fast ones: a response is often compressed for a single reader. The windows are small
ones: a slow reader of a large response holds its compressor.
"""

import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import brotli
import zstandard

__all__ = ["COMPRESS_BYTES_MIN", "coding_for", "compress", "negotiate", "new_packer"]

COMPRESS_BYTES_MIN: Final = 1024
_WINDOW_BITS: Final = 17
_ZSTD_PARAMETERS: Final = zstandard.ZstdCompressionParameters.from_level(1, window_log=_WINDOW_BITS)


_Packer = tuple[Callable[[bytes | memoryview], bytes], Callable[[], bytes]]
"""A function that compresses the next piece of a body, and one that returns the rest of it."""


def _methods(compressor: Any, pack: str = "compress", finish: str = "flush") -> _Packer:
    return getattr(compressor, pack), getattr(compressor, finish)


# In order of preference among codings of equal weight.
_CODINGS: Final[dict[str, Callable[[], _Packer]]] = {
    "zstd": lambda: _methods(
        zstandard.ZstdCompressor(compression_params=_ZSTD_PARAMETERS).compressobj()
    ),
    "br": lambda: _methods(brotli.Compressor(quality=3, lgwin=_WINDOW_BITS), "process", "finish"),
    "gzip": lambda: _methods(zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)),
    "deflate": lambda: _methods(zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS)),
}


def new_packer(coding: str) -> _Packer:
    """The functions that compress a body that comes in pieces."""
    return _CODINGS[coding]()


def compress(coding: str, body: bytes) -> bytes:
    """Compress a whole body."""
    pack, finish = new_packer(coding)
    return pack(body) + finish()


def coding_for(headers: Mapping[bytes, bytes], size: int) -> str | None:
    """The coding of a response of this size to a request with these headers, or None."""
    if size <= COMPRESS_BYTES_MIN:
        return None
    return negotiate(headers.get(b"accept-encoding", b""))


@lru_cache(maxsize=256)
def negotiate(accept: bytes) -> str | None:
    """Return the coding that an Accept-Encoding header prefers, or None for none."""
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
