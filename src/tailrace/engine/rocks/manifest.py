"""
Which files a database is made of: what its MANIFEST says, edit by edit.

Only what is needed for that is looked at; all else is stepped over. RocksDB reads the same file
when it opens the database, but does not tell which blob files it found in it.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["LiveFiles", "live_files"]

_DELETED, _NEW, _FAMILY, _BLOB, _BLOB_GARBAGE = 6, 103, 200, 400, 401
_NUMBERS: Final = {2: 1, 3: 1, 4: 1, 9: 1, 10: 1, 202: 0, 203: 1, 300: 1}
"""Edits of so many numbers."""
_TEXTS: Final = frozenset((1, 201))
_CURSOR: Final = 5
# What an older version may step over is a text.
_IGNORABLE: Final = 1 << 13
_NEW_END, _BLOB_END = 1, 0


class LiveFiles:
    """The numbers of files that hold what is stored."""

    def __init__(self) -> None:
        self.tables: dict[int, int] = {}
        """With their sizes."""
        self._blobs: dict[int, int] = {}
        self._blob_families: dict[int, int] = {}

    @property
    def blobs(self) -> dict[int, int]:
        """With their column families."""
        left = (number for number, count in self._blobs.items() if count > 0)
        return {number: self._blob_families[number] for number in left}

    def edit(self, record: bytes) -> None:
        """
        Apply one edit.

        Raises:
            ValueError, IndexError: It is of no form that we know.
        """
        fields = _Fields(record)
        family = 0
        added = []
        while not fields.ended:
            tag = fields.number()
            if tag == _DELETED:
                fields.number()
                self.tables.pop(fields.number(), None)
            elif tag == _NEW:
                self._new_table(fields)
            elif tag == _BLOB:
                number, count = fields.number(), fields.number()
                fields.number()
                fields.texts(2)
                fields.custom(_BLOB_END)
                self._blobs[number] = count
                added.append(number)
            elif tag == _BLOB_GARBAGE:
                number, count = fields.number(), fields.number()
                fields.number()
                fields.custom(_BLOB_END)
                self._blobs[number] = self._blobs.get(number, 0) - count
            elif tag == _FAMILY:
                # It comes after what it is said of.
                family = fields.number()
            else:
                _skip(fields, tag)
        self._blob_families.update(dict.fromkeys(added, family))

    def _new_table(self, fields: "_Fields") -> None:
        fields.number()
        number, size = fields.number(), fields.number()
        fields.texts(2)
        fields.numbers(2)
        fields.custom(_NEW_END)
        # Its upper bits are the path that it lies in, of which there is one.
        self.tables[number] = size


def _skip(fields: "_Fields", tag: int) -> None:
    if tag in _NUMBERS:
        fields.numbers(_NUMBERS[tag])
    elif tag in _TEXTS or tag & _IGNORABLE:
        fields.texts(1)
    elif tag == _CURSOR:
        fields.numbers(1)
        fields.texts(1)
    else:
        raise ValueError(f"an edit of kind {tag} is not known")


class _Fields:
    """Numbers of variable length, and texts after their lengths."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at >= len(self._data)

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def numbers(self, count: int) -> None:
        for _ in range(count):
            self.number()

    def texts(self, count: int) -> None:
        for _ in range(count):
            size = self.number()
            self._at += size
            if self._at > len(self._data):
                raise ValueError("a text is cut off")

    def custom(self, end: int) -> None:
        """Fields that came later, each a number and a text."""
        while self.number() != end:
            self.texts(1)


def live_files(records: Iterable[bytes]) -> LiveFiles:
    """
    What is left after all edits.

    Raises:
        ValueError, IndexError: One is of no form that we know.
    """
    found = LiveFiles()
    for record in records:
        found.edit(record)
    return found
