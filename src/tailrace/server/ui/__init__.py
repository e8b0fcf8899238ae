"""The page at `/-/ui/`: a table of files, read once."""

from tailrace.server.ui.serving import Ui

__all__ = ["Ui"]
