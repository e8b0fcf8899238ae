"""
Patterns over the paths of streams: `*` is exactly one segment, `**` any number of them, even none.

Every other segment stands for itself; `%2A` in it is a literal `*`. A wildcard is a whole segment:
`a*` matches only a segment of that name.
"""

from typing import Final

__all__ = ["ANY", "ONE", "Glob", "GlobSegment"]

ONE: Final = None
"""`*`"""
ANY: Final = True
"""`**`"""

GlobSegment = bytes | bool | None
"""A literal segment, or one of the two wildcards."""


class Glob:
    """A parsed pattern. Paths are bytes in UTF-8, without surrounding slashes."""

    __slots__ = ("prefix", "segments")

    def __init__(self, pattern: str) -> None:
        segments: list[GlobSegment] = []
        for text in pattern.split("/"):
            if text == "**":
                # Two in a row match what one matches.
                if not segments or segments[-1] is not ANY:
                    segments.append(ANY)
            elif text:
                literal = text.replace("%2A", "*").replace("%2a", "*").encode()
                segments.append(ONE if text == "*" else literal)
        self.segments = tuple(segments)
        self.prefix = _literal_prefix(self.segments)
        """All paths that match begin with it."""

    def matches(self, path: bytes) -> bool:
        """Whether the pattern matches a whole path. In the worst case quadratic in its segments."""
        wanted, found = self.segments, path.split(b"/")
        at = here = 0
        # Where the last `**` is, and the first segment after what it takes.
        star, taken = -1, 0
        while here < len(found):
            # Past the end of the pattern nothing matches, not even an empty segment.
            segment = wanted[at] if at < len(wanted) else False
            if segment is ANY:
                star, taken = at, here
                at += 1
            elif segment is ONE or segment == found[here]:
                at += 1
                here += 1
            elif star >= 0:
                taken += 1
                at, here = star + 1, taken
            else:
                return False
        return all(segment is ANY for segment in wanted[at:])


def _literal_prefix(segments: tuple[GlobSegment, ...]) -> bytes:
    prefix = b""
    for at, segment in enumerate(segments):
        separator = b"/" if at else b""
        if not isinstance(segment, bytes):
            # `**` may match nothing, and then no slash follows.
            return prefix + separator if segment is ONE else prefix
        prefix += separator + segment
    return prefix
