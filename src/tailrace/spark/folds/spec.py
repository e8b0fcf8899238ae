"""
Folds by name, and the content types of their snapshots.

The content type of a snapshot has the fold as parameters:

    application/json; fold="last-write-wins"; key="/id"
    text/plain; fold="concat"
    application/json; fold="shop.totals:add"

Rule 1: a job continues from a snapshot only if the same fold made it, with the same key. The state
of another fold would be misinterpreted, and its messages are gone. `adopt` states that a snapshot
of unknown origin is a state of this fold; it must still be valid as one.

Rule 2: folds other than `concat` and functions parse messages, so they need streams of JSON.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tailrace.client.encoding import is_json
from tailrace.protocol.limits import CONTENT_TYPE_BYTES_MAX
from tailrace.spark.folds.base import Fold, FoldInvalid
from tailrace.spark.folds.concat import ConcatBytes, ConcatJson
from tailrace.spark.folds.keys import parse_path, pointer
from tailrace.spark.folds.last_write_wins import LastWriteWins
from tailrace.spark.folds.merge_patch import MergePatch
from tailrace.spark.folds.state import StateFold
from tailrace.spark.folds.user_function import UserFold, find_function

__all__ = ["FOLDS", "FoldSpec"]

FOLDS: Final = ("last-write-wins", "state", "merge-patch", "concat")
"""The built-in folds."""

_JSON: Final = "application/json"
_NAME_CHARS_MAX: Final = 100
# All visible characters but the quotation mark, the backslash and the percent sign.
_PLAIN: Final = "".join(map(chr, range(0x21, 0x7F))).translate({34: None, 92: None, 37: None})


@dataclass(frozen=True)
class FoldSpec:
    """A fold and its parameters; picklable."""

    name: str
    path: tuple[str, ...] = ()
    """The path of the key, if there is one."""

    @classmethod
    def of(cls, name: str, key: str | None = None) -> "FoldSpec":
        """
        A fold by its name, or by `module:function`; a key by its path, `id`, `a.b` or `/a/b`.

        Raises:
            FoldInvalid: There is no such fold, or its key is missing or not allowed.
        """
        if name not in FOLDS and ":" not in name:
            raise FoldInvalid(name, f"is neither {', '.join(FOLDS)} nor module:function")
        needs_key = name == "last-write-wins"
        if needs_key and key is None:
            raise FoldInvalid(name, "needs the path of the key, as id or /a/b")
        if not needs_key and key is not None:
            raise FoldInvalid(name, "takes no key")
        spec = cls(name, () if key is None else parse_path(name, key))
        if ":" in name:
            find_function(name)
        if max(len(value) for value in spec._parameters().values()) > _NAME_CHARS_MAX:
            raise FoldInvalid(name, f"name and key may have {_NAME_CHARS_MAX} characters each")
        return spec

    def suits(self, content_type: str) -> bool:
        """Rule 2."""
        return is_json(content_type) or self.name == "concat" or ":" in self.name

    def new(self, content_type: str, snapshot: bytes | None) -> Fold:
        """
        A new fold for one stream of this type.

        Raises:
            StateRefused: The snapshot is not a state of this fold.
        """
        match self.name:
            case "last-write-wins":
                return LastWriteWins(snapshot, self.path)
            case "state":
                return StateFold(snapshot)
            case "merge-patch":
                return MergePatch(snapshot)
            case "concat":
                return (ConcatJson if is_json(content_type) else ConcatBytes)(snapshot)
        return UserFold(snapshot, self.name, as_json=is_json(content_type))

    def snapshot_type(self, content_type: str) -> str:
        """The content type of a snapshot of a stream of this type."""
        added = "".join(f'; {name}="{value}"' for name, value in self._parameters().items())
        if is_json(content_type):
            return _JSON + added
        if len(content_type) + len(added) > CONTENT_TYPE_BYTES_MAX:
            content_type = content_type.partition(";")[0].rstrip()
        return content_type + added

    def made(self, snapshot_type: str, content_type: str) -> bool:
        """Rule 1: whether this fold made a snapshot of this type in a stream of that type."""
        return snapshot_type == self.snapshot_type(content_type)

    def _parameters(self) -> dict[str, str]:
        found = {"fold": self.name}
        if self.path:
            found["key"] = pointer(self.path)
        return {name: quote(value, safe=_PLAIN) for name, value in found.items()}
