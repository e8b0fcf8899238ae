"""Reads a database that may be damaged, as far as possible, and reports what cannot be read."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator

from rocksdict import Rdict

from tailrace.engine.rocks.findings import Finding, Report
from tailrace.engine.rocks.keys import items, keys

__all__ = ["SalvageReader", "has"]


class SalvageReader:
    """The column families of a database; errors are reported, and reading continues elsewhere."""

    def __init__(
        self, families: dict[str, Rdict], report: Report, advance: Callable[[int], object]
    ) -> None:
        self.families = families
        self.partial = False
        """Something could not be read, so what seems to be missing may exist."""
        self._report = report
        self._advance = advance

    def walk(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """All items of a family, up to the first that cannot be read."""
        try:
            for key, value in items(self.families[family], b"", None):
                self._advance(len(key) + len(value))
                yield key, value
        except Exception as error:  # rocksdict raises plain Exception
            self.fail(family, error)

    def keys(self, family: str) -> Iterator[bytes]:
        """All keys of a family, up to the first that cannot be read."""
        try:
            yield from keys(self.families[family], b"", None)
        except Exception as error:  # rocksdict raises plain Exception
            self.fail(family, error)

    def get(self, family: str, key: bytes, *, raises: bool = False) -> bytes | None:
        """A value, if it exists and can be read."""
        try:
            found: bytes | None = self.families[family].get(key)
        except Exception as error:  # rocksdict raises plain Exception
            if raises:
                raise
            self.fail(family, error)
            return None
        return found

    def report(self, problem: str) -> None:
        """Report a problem of the whole database."""
        self._report(Finding(problem))

    def fail(self, family: str, error: Exception) -> None:
        """Report that a family cannot be read."""
        self.partial = True
        self.report(f"{family} cannot be read: {error}")


def has(ids: "array[int]", wanted: int) -> bool:
    """Whether a sorted array has an id."""
    at = bisect_left(ids, wanted)
    return at < len(ids) and ids[at] == wanted
