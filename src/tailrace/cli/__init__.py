"""The `tailrace` command: one module a subcommand."""

from tailrace.cli.main import main

__all__ = ["main"]
