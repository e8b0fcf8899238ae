"""
The base of every exception of Tailrace: a dataclass with a message made from its fields.

A subclass declares its fields as annotations and its `message` as a format string over them. It is
made a dataclass when it is defined, so it needs neither a decorator nor an `__init__`:

    class ProducerGap(Refusal):
        \"""A batch arrived before its predecessor.\"""

        message = "expected sequence {expected_seq}, received {received_seq}: resend from there"
        expected_seq: int
        received_seq: int

Every exception pickles, because Spark sends them between processes.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar, cast, dataclass_transform

__all__ = ["ExitCode", "TailraceError"]


class ExitCode(IntEnum):
    """The exit status of the `tailrace` command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    UNAUTHORIZED = 6
    GONE = 7
    INTERRUPTED = 130


@dataclass_transform(eq_default=False)
class TailraceError(Exception):
    """Any error that Tailrace raises."""

    message: ClassVar[str] = ""
    """A format string over the fields."""
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    """How the `tailrace` command exits when this error ends it."""
    hint: ClassVar[str] = ""
    """What the user can do next."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        declares_init = "__init__" in vars(cls)
        # `eq=False` keeps exceptions hashable; `repr=False` keeps the repr of `Exception`.
        dataclass(eq=False, repr=False)(cls)
        if not declares_init and not fields(cast(Any, cls)):
            # Without fields, an exception takes any arguments, as `Exception` does.
            del cls.__init__

    def __str__(self) -> str:
        return self.message.format_map(vars(self)) if self.message else super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        if type(self) is TailraceError:
            return super().__reduce__()  # type: ignore[return-value]
        # `Exception` replays `args`, which has no keyword arguments. The state carries the notes.
        values = tuple(getattr(self, field.name) for field in fields(cast(Any, self)))
        return type(self), values or self.args, vars(self)
