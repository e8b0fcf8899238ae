"""Something to do between two group commits, when all that is written is durable."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from tailrace.engine.commit import GroupCommit, Outcome
from tailrace.engine.errors import StorageFailed
from tailrace.protocol.errors import Refusal
from tailrace.protocol.machine import Effect, Verdict

__all__ = ["settled"]

T = TypeVar("T")

_NOTHING: Final[Outcome] = (Verdict(Effect.NOTHING), None)


async def settled(commit: GroupCommit, work: Callable[[], T]) -> T:
    """
    Do something on the loop at the first moment at which no batch is on its way to the disk.

    Raises:
        StorageFailed: That moment does not come.
    """
    if commit.failure is not None:
        # What was on its way then stays so for ever.
        raise StorageFailed from commit.failure
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def run(outcome: Outcome) -> None:
        if done.cancelled():
            return
        if isinstance(outcome, Refusal):
            done.set_exception(outcome)
            return
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    if commit.syncing is None:
        run(_NOTHING)
    else:
        # Replies are sent when the batch is settled, and before the next one is written.
        commit.syncing.replies.append((run, _NOTHING))
    return await done
