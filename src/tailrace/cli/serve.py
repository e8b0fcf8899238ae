"""`tailrace serve`: its flags are generated from the settings."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from tailrace.cli.failures import Failure
from tailrace.server.settings import (
    ENV_PREFIX,
    SettingsError,
    load_settings,
    option_name,
    settings_table,
)

__all__ = ["check_libraries", "serve"]


def _flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add one flag for each setting. `load_settings` checks the values of all sources."""
    for item in reversed(settings_table()):
        is_switch = isinstance(item.default, bool)
        default = f"; default: {item.default}" if item.default not in ("", False) else ""
        command = click.option(
            option_name(item.name),
            metavar=None if is_switch else item.metavar,
            is_flag=is_switch,
            # A flag that is absent is not False: a variable or the file may set it.
            default=None,
            help=f"{item.help} [{ENV_PREFIX}{item.name.upper()}{default}]",
        )(command)
    return command


def check_libraries() -> None:
    """
    Check that the server's dependencies are installed.

    Raises:
        Failure: Only the client is installed.
    """
    try:
        import tailrace.server.lifecycle  # noqa: F401 - only to see whether the import succeeds
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tailrace"):
            raise
        raise Failure(
            "serving needs the server's libraries: pip install 'tailrace[server]'"
        ) from error


@click.command()
@_flags
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar=f"{ENV_PREFIX}CONFIG",
    help="TOML file of settings, named like the flags with underscores.",
)
def serve(config: Path | None, **flags: str | bool | None) -> None:
    """Serve streams over HTTP."""
    check_libraries()
    from tailrace.engine.errors import EngineError
    from tailrace.server.lifecycle import serve as run

    try:
        status = run(load_settings(flags, file=config))
    except SettingsError as error:
        raise Failure(str(error), error.exit_code, error.hint) from error
    except EngineError as error:
        raise Failure(str(error)) from error
    sys.exit(status)
