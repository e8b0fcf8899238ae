"""The web UI at `/-/ui/`."""

from tailrace.server.handlers.ui.handler import UiHandler

__all__ = ["UiHandler"]
