"""
Writes the table of options in docs/spark.md from `tailrace.spark.options`: `make docs`.

The table is between two comments of the page. A test checks that it is up to date.
"""

import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

from tailrace.spark.options import OPTIONS, ReadOptions, WriteOptions

PAGE: Final = Path(__file__).parents[1] / "docs" / "spark.md"
FIRST: Final = "<!-- options: written by make docs -->\n"
LAST: Final = "<!-- end of options -->\n"
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def table() -> str:
    """The options in the order of the code."""
    defaults = {
        field.name: field.default for kind in (ReadOptions, WriteOptions) for field in fields(kind)
    }
    lines = ["| option | for | default | what it does |", "|---|---|---|---|"]
    for option in OPTIONS:
        default = _default(defaults[option.field])
        lines.append(f"| `{option.name}` | {option.use} | {default} | {option.help} |")
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    if value in (MISSING, None, "", ()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        for size, unit in _UNITS:
            if value % size == 0:
                return f"{value // size} {unit}"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def page(text: str) -> str:
    """The page with the current table."""
    before, _, rest = text.partition(FIRST)
    _, _, after = rest.partition(LAST)
    return f"{before}{FIRST}{table()}{LAST}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    sys.exit(0)
