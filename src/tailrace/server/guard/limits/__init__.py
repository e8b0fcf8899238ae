"""How much a client may ask for, how much a bucket may hold, and who may wait (§10.5)."""

from tailrace.server.guard.limits.file import LimitsFileInvalid
from tailrace.server.guard.limits.limits import Limits

__all__ = ["Limits", "LimitsFileInvalid"]
