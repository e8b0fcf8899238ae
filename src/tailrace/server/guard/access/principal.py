"""The principal of a request, and what it may do."""

from collections.abc import Iterable
from typing import Final, Self

from tailrace.server.guard.access.errors import Forbidden, Unauthenticated
from tailrace.server.guard.access.grants import Grant, Operation, compile_grants

__all__ = ["ANONYMOUS_ID", "NOBODY", "Principal"]

ANONYMOUS_ID: Final = "anonymous"
_READ: Final = Operation.READ.value


class Principal:
    """An identified client. Holds no secret."""

    __slots__ = ("_compiled", "basis", "expires_at", "grants", "id")

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
        """In milliseconds since 1970; None if it does not expire."""
        self.basis = basis
        """What identified it. The principal is valid as long as its basis is."""
        self._compiled = compile_grants(self.grants)

    def may(self, operation: Operation, key: bytes) -> bool:
        """Whether the operation is granted on this key of a stream, a bucket or a route."""
        rule = self._compiled.get(operation)
        return rule is not None and (key in rule[0] or key.startswith(rule[1]))

    def may_all(self, operation: Operation, prefix: bytes) -> bool:
        """Whether the operation is granted on every possible key with this prefix."""
        rule = self._compiled.get(operation)
        return rule is not None and prefix.startswith(rule[1])

    def granted(self, operation: Operation, prefix: bytes) -> list[tuple[bytes, bool]]:
        """
        The keys with this prefix that the operation is granted on, in order.

        Each item is a key, or a prefix of keys (then true); none contains another. A listing that
        iterates over them reveals nothing else, not even by its cursor.
        """
        keys, prefixes = self._compiled.get(operation, (frozenset(), ()))
        if prefix.startswith(prefixes):
            return [(prefix, True)]
        inside = sorted(item for item in prefixes if item.startswith(prefix))
        # Sorted: the prefixes that another one contains come right after it.
        widest: list[bytes] = []
        for item in inside:
            if not widest or not item.startswith(widest[-1]):
                widest.append(item)
        single = {key for key in keys if key.startswith(prefix)}
        found = [(item, True) for item in widest]
        found += [(key, False) for key in single if not key.startswith(tuple(widest))]
        return sorted(found)

    def refusal(self, operation: Operation, location: str) -> Unauthenticated | Forbidden:
        """The refusal of an operation that is not granted."""
        if self.id == ANONYMOUS_ID:
            # With credentials, the request may be allowed.
            return Unauthenticated()
        return Forbidden(self.id, operation.value, location)

    def read_only(self) -> Self:
        """The same principal with read grants only: for a token in a URL."""
        reader = type(self)(self.id, self.grants, expires_at=self.expires_at, basis=self.basis)
        reader._compiled = {name: keys for name, keys in self._compiled.items() if name == _READ}
        return reader

    def __repr__(self) -> str:
        return f"Principal({self.id!r})"


NOBODY: Final = Principal(ANONYMOUS_ID, ())
"""The principal of requests that need no identification."""
