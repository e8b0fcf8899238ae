"""A group whose subcommands are imported when they are needed."""

from importlib import import_module

import click

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """Subcommand NAME is the object NAME of the module NAME in `package`."""

    package: str
    names: tuple[str, ...]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.names:
            return None
        # `import` is a keyword, and so not the name of a module.
        name = "import_" if cmd_name == "import" else cmd_name
        command: click.Command = getattr(import_module(f"{self.package}.{name}"), name)
        return command
