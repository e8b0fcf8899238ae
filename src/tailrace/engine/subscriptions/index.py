"""
Finds the subscriptions that watch a stream.

Patterns are in a tree by their segments, so that a lookup visits only patterns that agree with the
path so far: its cost does not grow with the number of other subscriptions.
"""

from collections.abc import Iterable

from tailrace.engine.subscriptions.entry import SubscriptionEntry
from tailrace.protocol.glob import ANY, ONE, GlobSegment

__all__ = ["SubscriptionIndex"]


class _Node:
    """A position in patterns."""

    __slots__ = ("ends", "next")

    def __init__(self) -> None:
        self.next: dict[GlobSegment, _Node] = {}
        # Subscriptions whose pattern ends here.
        self.ends: dict[SubscriptionEntry, None] = {}


class SubscriptionIndex:
    """The patterns and the explicit links of all subscriptions."""

    def __init__(self) -> None:
        self._roots: dict[bytes, _Node] = {}
        self._explicit: dict[bytes, dict[SubscriptionEntry, None]] = {}

    def add(self, entry: SubscriptionEntry) -> None:
        """Add a subscription: its pattern, and its explicit links."""
        for path in entry.explicit:
            self.link(entry, path)
        if entry.glob is not None:
            node = self._roots.setdefault(entry.scope, _Node())
            for segment in entry.glob.segments:
                node = node.next.setdefault(segment, _Node())
            node.ends[entry] = None

    def remove(self, entry: SubscriptionEntry) -> None:
        for path in entry.explicit:
            self.unlink(entry, path)
        if entry.glob is not None:
            nodes = [self._roots[entry.scope]]
            for segment in entry.glob.segments:
                nodes.append(nodes[-1].next[segment])
            del nodes[-1].ends[entry]
            for node, segment in zip(nodes[-2::-1], entry.glob.segments[::-1], strict=True):
                child = node.next[segment]
                if child.ends or child.next:
                    return
                del node.next[segment]
            if not nodes[0].ends and not nodes[0].next:
                del self._roots[entry.scope]

    def link(self, entry: SubscriptionEntry, path: bytes) -> None:
        """Add an explicit link."""
        self._explicit.setdefault(entry.stream_key(path), {})[entry] = None

    def unlink(self, entry: SubscriptionEntry, path: bytes) -> None:
        key = entry.stream_key(path)
        linked = self._explicit[key]
        del linked[entry]
        if not linked:
            del self._explicit[key]

    def watchers(self, key: bytes) -> tuple[SubscriptionEntry, ...]:
        """The subscriptions that watch the stream of this key, each once."""
        found = dict(self._explicit.get(key, {}))
        scope, _, path = key.partition(b"\0")
        root = self._roots.get(scope)
        if root is not None:
            # All positions that a pattern can be in. The value tells those after a `**`, which
            # may stay where they are.
            nodes = _closure({root: False}.items())
            for segment in path.split(b"/"):
                nodes = _closure(_step(nodes, segment))
                if not nodes:
                    break
            for node in nodes:
                found.update(node.ends)
        return tuple(found)


def _step(nodes: dict[_Node, bool], segment: bytes) -> Iterable[tuple[_Node, bool]]:
    for node, stays in nodes.items():
        if stays:
            yield node, True
        for name in (segment, ONE):
            if (following := node.next.get(name)) is not None:
                yield following, False


def _closure(nodes: Iterable[tuple[_Node, bool]]) -> dict[_Node, bool]:
    """These positions, and those after a `**` that takes nothing."""
    found: dict[_Node, bool] = {}
    for node, stays in nodes:
        found[node] = stays
        if (following := node.next.get(ANY)) is not None:
            found[following] = True
    return found
