"""The command's root: its subcommands, each imported when it is needed, and how it ends."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click
from click.exceptions import NoArgsIsHelpError

from tailrace import __version__
from tailrace.cli.failures import ExitCode, Failure, show

__all__ = ["main"]

# A server need not load the client's libraries, and the client's commands do without the server's.
_MODULES: Final = {
    "serve": "serve",
    "demo": "demo",
    "create": "create",
    "append": "append",
    "read": "read",
    "tail": "tail",
    "head": "head",
    "close": "close",
    "rm": "rm",
    "ls": "ls",
    "bucket": "bucket",
    "snapshot": "snapshot",
    "bootstrap": "bootstrap",
    "import": "import_",
    "export": "export",
    "completion": "completion",
}


class _Commands(click.Group):
    """Subcommands by name, and failures as one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = _MODULES[cmd_name]
        command: click.Command = getattr(import_module(f"tailrace.cli.{module}"), module)
        return command

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run it, and end the process."""
        extra["standalone_mode"] = False
        try:
            status = super().main(args, "tailrace", **extra)
            sys.stdout.flush()
        except Failure as failure:
            show(failure.message, failure.hint)
            status = failure.code
        except NoArgsIsHelpError as error:
            error.show()
            status = ExitCode.USAGE
        except click.UsageError as error:
            show(error.format_message(), _usage_hint(error))
            status = ExitCode.USAGE
        except click.ClickException as error:
            show(error.format_message())
            status = ExitCode.FAILED
        except click.Abort:
            status = ExitCode.INTERRUPTED
        except BrokenPipeError:
            _forget_output()
            status = ExitCode.DONE
        sys.exit(status if isinstance(status, int) else ExitCode.DONE)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Who read our output has all that was wanted: `tailrace read x | head -n 1`.
            _forget_output()
            return ExitCode.DONE


def _usage_hint(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "tailrace"
    return f"{path} --help"


def _forget_output() -> None:
    """What is left in the buffer has nowhere to go, also when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tailrace")
def main() -> None:
    """Durable streams: append-only, replayable, live-tailable, over HTTP."""
