"""The principal of a request, and what it may do."""

from collections.abc import Iterable
from typing import Final, Self

from tailrace.server.guard.access.errors import Forbidden, Unauthenticated
from tailrace.server.guard.access.grants import Grant, Operation

__all__ = ["ANONYMOUS_ID", "NOBODY", "Principal"]

ANONYMOUS_ID: Final = "anonymous"


class Principal:
    """An identified client. Holds no secret."""

    __slots__ = ("_granted", "basis", "expires_at", "grants", "id")

    def __init__(
        self,
        id_: str,
        grants: Iterable[Grant],
        *,
        expires_at: int | None = None,
        basis: object = None,
        operations: Iterable[Operation] = tuple(Operation),
    ) -> None:
        """`operations`: only these are granted, even if the grants have more."""
        self.id = id_
        self.grants = tuple(grants)
        self.expires_at = expires_at
        """In milliseconds since 1970; None if it does not expire."""
        self.basis = basis
        """What identified it. The principal is valid as long as its basis is."""
        # For each operation, the keys and the prefixes of keys that it is granted on.
        self._granted: dict[Operation, tuple[frozenset[bytes], tuple[bytes, ...]]] = {}
        for operation in Operation:
            given = [
                grant
                for grant in self.grants
                if operation in operations and operation in grant.operations
            ]
            keys = frozenset(grant.key for grant in given if grant.key is not None)
            prefixes = {grant.prefix for grant in given if grant.prefix is not None}
            self._granted[operation] = keys, tuple(sorted(prefixes))

    def may(self, operation: Operation, key: bytes) -> bool:
        """Whether the operation is granted on this key of a stream, a bucket or a route."""
        keys, prefixes = self._granted[operation]
        return key in keys or key.startswith(prefixes)

    def may_all(self, operation: Operation, prefix: bytes) -> bool:
        """Whether the operation is granted on every possible key with this prefix."""
        return prefix.startswith(self._granted[operation][1])

    def granted(self, operation: Operation, prefix: bytes) -> list[tuple[bytes, bool]]:
        """
        The keys with this prefix that the operation is granted on, in order.

        Each item is a key, or a prefix of keys (then true); none contains another. A listing that
        iterates over them reveals nothing else, not even by its cursor.
        """
        keys, prefixes = self._granted[operation]
        if prefix.startswith(prefixes):
            return [(prefix, True)]
        # Sorted: the prefixes that another one contains come right after it.
        widest: list[bytes] = []
        for item in prefixes:
            if item.startswith(prefix) and not (widest and item.startswith(widest[-1])):
                widest.append(item)
        found = [(item, True) for item in widest]
        found += [
            (key, False)
            for key in keys
            if key.startswith(prefix) and not key.startswith(tuple(widest))
        ]
        return sorted(found)

    def refusal(self, operation: Operation, location: str) -> Unauthenticated | Forbidden:
        """The refusal of an operation that is not granted."""
        if self.id == ANONYMOUS_ID:
            # With credentials, the request may be allowed.
            return Unauthenticated()
        return Forbidden(self.id, operation.value, location)

    def read_only(self) -> Self:
        """The same principal with read grants only: for a token in a URL."""
        return type(self)(
            self.id,
            self.grants,
            expires_at=self.expires_at,
            basis=self.basis,
            operations=(Operation.READ,),
        )

    def __repr__(self) -> str:
        return f"Principal({self.id!r})"


NOBODY: Final = Principal(ANONYMOUS_ID, ())
"""The principal of requests that need no identification."""
