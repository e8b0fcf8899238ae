"""How much a client may ask for, how much a bucket may hold, and who may wait (§10.5)."""

from tailrace.server.guard.limits.limits import Limits
from tailrace.server.guard.limits.limits_file import LimitsFileInvalid

__all__ = ["Limits", "LimitsFileInvalid"]
