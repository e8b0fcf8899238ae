"""Rate limits of clients, quotas of buckets, and shares of readers and connections (§10.5)."""

from tailrace.server.guard.limits.limits import Limits
from tailrace.server.guard.limits.limits_file import LimitsFileInvalid

__all__ = ["Limits", "LimitsFileInvalid"]
