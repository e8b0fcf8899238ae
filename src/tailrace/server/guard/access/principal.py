"""Who a request comes from, and what that one may do."""

from collections.abc import Iterable
from typing import Final, Self

from tailrace.server.guard.access.grants import Grant, Operation, compile_grants

__all__ = ["ANONYMOUS_ID", "NOBODY", "Principal"]

ANONYMOUS_ID: Final = "anonymous"
_READ: Final = Operation.READ.value


class Principal:
    """Someone who was identified; holds no secret."""

    __slots__ = ("_rules", "basis", "expires_at", "grants", "id")

    def __init__(
        self,
        id_: str,
        grants: Iterable[Grant],
        *,
        expires_at: int | None = None,
        basis: object = None,
    ) -> None:
        self.id = id_
        self.grants = tuple(grants)
        self.expires_at = expires_at
        """In milliseconds since 1970; None: never."""
        self.basis = basis
        """What the identification rests on; it holds for as long as that is in force."""
        self._rules = compile_grants(self.grants)

    def may(self, operation: Operation, key: bytes) -> bool:
        """Whether this may be done to the stream or bucket of this key, or to a route of ours."""
        rule = self._rules.get(operation)
        return rule is not None and (key in rule[0] or key.startswith(rule[1]))

    def may_all(self, operation: Operation, prefix: bytes) -> bool:
        """Whether this may be done to everything whose key begins like this, there or not."""
        rule = self._rules.get(operation)
        return rule is not None and prefix.startswith(rule[1])

    def granted(self, operation: Operation, prefix: bytes) -> list[tuple[bytes, bool]]:
        """
        Of all that has a key beginning like this, what this may be done to, in order.

        Each is a key, or a beginning of keys (then true); none lies within another. A listing that
        looks nowhere else tells of nothing else, not even by where it goes on.
        """
        keys, prefixes = self._rules.get(operation, (frozenset(), ()))
        if prefix.startswith(prefixes):
            return [(prefix, True)]
        within = sorted(item for item in prefixes if item.startswith(prefix))
        # Sorted, what lies within another comes right after it, or after others that do.
        widest: list[bytes] = []
        for item in within:
            if not widest or not item.startswith(widest[-1]):
                widest.append(item)
        single = {key for key in keys if key.startswith(prefix)}
        found = [(item, True) for item in widest]
        found += [(key, False) for key in single if not key.startswith(tuple(widest))]
        return sorted(found)

    def reading(self) -> Self:
        """The same one, who may read and nothing else: for a token that stood in a URL."""
        reader = type(self)(self.id, self.grants, expires_at=self.expires_at, basis=self.basis)
        reader._rules = {name: rule for name, rule in self._rules.items() if name == _READ}
        return reader

    def __repr__(self) -> str:
        return f"Principal({self.id!r})"


NOBODY: Final = Principal(ANONYMOUS_ID, ())
"""Who asks for what is open to all: nobody is identified for that."""
