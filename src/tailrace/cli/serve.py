"""`tailrace serve`: its flags are the table of settings."""

import sys
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click

from tailrace.cli.failures import Failure
from tailrace.exceptions import ExitCode
from tailrace.server.settings import (
    ENV_PREFIX,
    Settings,
    SettingsError,
    load_settings,
    option_name,
)

__all__ = ["check_libraries", "serve"]


def _flags(command: Callable[..., None]) -> Callable[..., None]:
    """One flag for each setting. Values are checked by `load_settings`, like all others."""
    for item in reversed(fields(Settings)):
        command = _flag(item)(command)
    return command


def _flag(item: "Field[Any]") -> Callable[[Callable[..., None]], Callable[..., None]]:
    choices = item.metadata["choices"]
    is_switch = isinstance(item.default, bool)
    metavar = "|".join(choices) if choices else type(item.default).__name__.upper()
    default = f"; default: {item.default}" if item.default not in ("", False) else ""
    return click.option(
        option_name(item.name),
        metavar=None if is_switch else item.metadata["metavar"] or metavar,
        is_flag=is_switch,
        # Not given is not the same as no: a variable or the file may say yes.
        default=None,
        help=f"{item.metadata['help']} [{ENV_PREFIX}{item.name.upper()}{default}]",
    )


def check_libraries() -> None:
    """
    Make sure that this installation can serve.

    Raises:
        Failure: It has the client alone.
    """
    try:
        import tailrace.server.run  # noqa: F401 - whether it can be imported is the question
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
    help="TOML file with settings, named like the flags with underscores.",
)
def serve(config: Path | None, **flags: str | bool | None) -> None:
    """Serve streams over HTTP."""
    check_libraries()
    from tailrace.engine.errors import EngineError
    from tailrace.server.access import AccessFileInvalid
    from tailrace.server.forwarded import ProxiesInvalid
    from tailrace.server.limits import LimitsFileInvalid
    from tailrace.server.run import serve as run
    from tailrace.server.tls import TlsInvalid

    try:
        settings = load_settings(flags, file=config)
        status = run(settings)
    except (
        SettingsError, AccessFileInvalid, LimitsFileInvalid, ProxiesInvalid, TlsInvalid,
    ) as error:  # fmt: skip
        raise Failure(str(error), ExitCode.USAGE, getattr(error, "hint", "")) from error
    except EngineError as error:
        raise Failure(str(error)) from error
    sys.exit(status)
