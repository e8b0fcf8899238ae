"""The command's root: its subcommands, each imported when it is needed, and how it ends."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import click
from click.exceptions import NoArgsIsHelpError

from tailrace import __version__
from tailrace.cli.failures import ExitCode, Failure, show
from tailrace.cli.output import flush_output, output_errors
from tailrace.cli.stdio import OutputEnded, forget, mend, tell

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
    "pipeline": "pipeline",
    "token": "token",
    "backup": "backup",
    "restore": "restore",
    "check": "check",
    "compact": "compact",
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
        mend()
        status = _status(lambda: super(_Commands, self).main(args, "tailrace", **extra))
        # Not when the interpreter ends, where nobody could tell that it failed.
        if status:
            with suppress(Failure, OutputEnded):
                flush_output()
        sys.exit(status or _status(flush_output))

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with output_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # All else is written by `Output`, but the help of a command, which click prints.
            forget(sys.stdout)
            raise OutputEnded from error
        except KeyboardInterrupt:
            # After the ^C of the terminal.
            tell("")
            raise click.Abort from None


def _status(run: Callable[[], object]) -> int:
    """Run something, tell how it failed, and its exit code."""
    try:
        result = run()
    except Failure as failure:
        show(failure.message, failure.hint)
        return failure.code
    except NoArgsIsHelpError as error:
        tell(error.format_message())
        return ExitCode.USAGE
    except click.UsageError as error:
        show(error.format_message(), _usage_hint(error))
        return ExitCode.USAGE
    except click.ClickException as error:
        show(error.format_message())
        return ExitCode.FAILED
    except click.Abort:
        return ExitCode.INTERRUPTED
    except OutputEnded:
        return ExitCode.DONE
    except OSError as error:
        show(str(error))
        return ExitCode.FAILED
    return result if isinstance(result, int) else ExitCode.DONE


def _usage_hint(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "tailrace"
    if isinstance(error, click.NoSuchOption) and path.endswith(" append"):
        return f"a VALUE that begins with a dash comes after --; {path} --help"
    return f"{path} --help"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tailrace")
def main() -> None:
    """Durable streams: append-only, replayable, live-tailable, over HTTP."""
