"""`tailrace serve`: its flags are generated from the settings."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from tailrace.server.settings import ENV_PREFIX, load_settings, option_name, settings_table

__all__ = ["serve"]


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
    from tailrace.server.lifecycle import serve as run

    sys.exit(run(load_settings(flags, file=config)))
