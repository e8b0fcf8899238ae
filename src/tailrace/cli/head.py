"""`tailrace head`."""

import click

from tailrace.cli.connection import Location, stream_argument
from tailrace.cli.failures import one_line
from tailrace.cli.output import as_json, fields_of, print_lines

__all__ = ["as_object_option", "head", "show_fields"]

as_object_option = click.option("--json", "is_json", is_flag=True, help="Print a JSON object.")


@click.command()
@stream_argument
@as_object_option
def head(location: Location, is_json: bool) -> None:
    """Print the metadata of a stream: type, tail, state."""
    with location.stream() as stream:
        show_fields({"url": stream.url, **fields_of(stream.head())}, is_json=is_json)


def show_fields(fields: dict[str, object], *, is_json: bool) -> None:
    """Print fields, one per line, or as a JSON object."""
    if is_json:
        print_lines(as_json(fields))
        return
    for name, value in fields.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        print_lines(f"{name}: {one_line(text)}")
