"""The page at `/-/ui/`: a table of files, read once."""

from tailrace.server.handlers.ui.handler import Ui

__all__ = ["Ui"]
