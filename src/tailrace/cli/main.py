"""The root command: imports each subcommand when it is needed, and sets the exit code."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from tailrace import __version__
from tailrace.cli.failures import Failure, print_error
from tailrace.cli.lazy_group import LazyGroup
from tailrace.cli.output import flush_output, output_errors
from tailrace.cli.stdio import OutputEnded, discard, print_stderr, reopen_closed
from tailrace.exceptions import ExitCode, TailraceError

__all__ = ["main"]

_SPARK_LIBRARIES = frozenset(("pandas", "pyarrow", "pyspark"))


class _Commands(LazyGroup):
    """Client commands do not load the libraries of the server, nor `serve` those of the client."""

    package = "tailrace.cli"
    names = (
        "serve", "demo", "create", "fork", "append", "read", "tail", "head", "close", "rm", "ls",
        "bucket", "snapshot", "bootstrap", "subscription", "import", "export", "pipeline", "token",
        "backup",
        "restore", "check", "compact", "completion",
    )  # fmt: skip

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run the command and exit."""
        extra["standalone_mode"] = False
        reopen_closed()
        status = _status(lambda: super(_Commands, self).main(args, "tailrace", **extra))
        # Flush here: an error at the exit of the interpreter would not change the exit code.
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
            # From the help, which click prints; `Output` handles its own errors.
            discard(sys.stdout)
            raise OutputEnded from error
        except KeyboardInterrupt:
            # End the line in which the terminal shows ^C.
            print_stderr("")
            raise click.Abort from None


def _status(run: Callable[[], object]) -> int:
    """Run a function, print its error, and return the exit code."""
    try:
        result = run()
    except Failure as failure:
        print_error(failure.message, failure.hint)
        return failure.code
    except TailraceError as error:
        print_error(str(error), error.hint)
        return error.exit_code
    except ModuleNotFoundError as error:
        name = error.name or ""
        if name.startswith("tailrace"):
            raise
        extra = "spark" if name in _SPARK_LIBRARIES else "server"
        print_error(f"this command needs {name}: pip install 'tailrace[{extra}]'")
        return ExitCode.FAILED
    except NoArgsIsHelpError as error:
        print_stderr(error.format_message())
        return ExitCode.USAGE
    except click.ClickException as error:
        print_error(error.format_message(), _hint(error))
        return error.exit_code
    except click.Abort:
        return ExitCode.INTERRUPTED
    except OutputEnded:
        return ExitCode.DONE
    except OSError as error:
        print_error(str(error))
        return ExitCode.FAILED
    return result if isinstance(result, int) else ExitCode.DONE


def _hint(error: click.ClickException) -> str:
    if not isinstance(error, click.UsageError):
        return ""
    path = error.ctx.command_path if error.ctx is not None else "tailrace"
    if isinstance(error, click.NoSuchOption) and path.endswith(" append"):
        return f"put a VALUE that begins with a dash after --; {path} --help"
    return f"{path} --help"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tailrace")
def main() -> None:
    """Durable streams over HTTP: append, replay and follow."""
