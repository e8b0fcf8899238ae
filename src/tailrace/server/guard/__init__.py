"""Checks that a request passes before its handler: access, limits, forwarded addresses."""
