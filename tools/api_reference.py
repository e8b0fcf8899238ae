"""
docs/api.md from the docstrings of the client: `make docs`.

Reads the source and imports nothing. The methods of `Stream` and `AsyncStream` are written once, as
flows; so are they here. A test compares the page with what this makes.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "tailrace" / "client"
PAGE: Final = ROOT / "docs" / "api.md"

INTRODUCTION: Final = """\
# API reference

Made from the docstrings by `make docs`. Everything is in `tailrace.client`; `Client` and
`AsyncClient` are in `tailrace` too.

The methods of both clients are the same. What is shown here are those of the blocking one; of the
asynchronous one, methods that return are awaited, and iterators are asynchronous
(`async for item in stream.tail():`).
"""

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """Every class of the client, by name."""

    def __init__(self) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        for path in sorted(SOURCE.rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    self.classes[node.name] = node

    def methods(self, name: str) -> dict[str, _Function]:
        """A class's functions, and those of the classes it is made of."""
        node = self.classes.get(name)
        if node is None:
            return {}
        found: dict[str, _Function] = {}
        for base in node.bases:
            found.update(self.methods(ast.unparse(base)))
        for item in node.body:
            if isinstance(item, _Function):
                found[item.name] = item
        return found


def page() -> str:
    """All of it."""
    sources = Sources()
    return "\n".join([INTRODUCTION, *_page(sources)]).rstrip() + "\n"


def _page(sources: Sources) -> Iterator[str]:
    yield "## Clients\n"
    yield from _class(sources, "Client", "AsyncClient")
    yield from _class(sources, "Retry")
    yield "## Streams\n"
    yield from _class(sources, "Stream", "AsyncStream")
    yield "## Producers\n"
    yield from _class(sources, "Producer", "AsyncProducer")
    yield from _class(sources, "Delivery")
    yield from _class(sources, "ProducerClaim")
    yield "## Buckets\n"
    yield from _class(sources, "Bucket", "AsyncBucket")
    yield "## What operations return\n"
    for name in _exported("values"):
        if name != "ProducerClaim":
            yield from _class(sources, name)
    yield "## Errors\n"
    for node in _nodes("errors"):
        if isinstance(node, ast.ClassDef):
            yield from _class(sources, node.name)


def _nodes(module: str) -> list[ast.stmt]:
    return ast.parse((SOURCE / f"{module}.py").read_text()).body


def _exported(module: str) -> list[str]:
    for node in _nodes(module):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise LookupError(f"{module} has no __all__")


def _class(sources: Sources, name: str, twin: str | None = None) -> Iterator[str]:
    node = sources.classes[name]
    bases = [base for base in map(ast.unparse, node.bases) if base in sources.classes]
    title = f"`{name}`" + (f", `{twin}`" if twin else "")
    yield (
        f"### {title}" + (f" ({', '.join(f'`{base}`' for base in bases)})" if bases else "") + "\n"
    )
    if doc := ast.get_docstring(node):
        yield _prose(doc) + "\n"
    fields = list(_fields(node))
    if fields:
        yield "\n".join(fields) + "\n"
    for item in node.body:
        yield from _member(sources, item)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Annotated attributes, each with the string below it."""
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(item, ast.AnnAssign) or ast.unparse(item.target).startswith("_"):
            continue
        default = f" = {ast.unparse(item.value)}" if item.value is not None else ""
        line = f"- `{ast.unparse(item.target)}: {ast.unparse(item.annotation)}{default}`"
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if is_text:
            assert isinstance(after, ast.Expr)
            line += f": {' '.join(ast.literal_eval(after.value).split())}"
        yield line


def _member(sources: Sources, item: ast.stmt) -> Iterator[str]:
    if isinstance(item, _Function):
        if (
            item.name == "__init__"
            and ast.get_docstring(item) is None
            and len(item.args.kwonlyargs)
        ):
            yield _signature(item, "__init__") + "\n"
        elif not item.name.startswith("_") and (doc := ast.get_docstring(item)):
            is_property = any(ast.unparse(by) == "property" for by in item.decorator_list)
            returns = _result(item)
            head = f"#### `{item.name}: {returns}`\n" if is_property else _heading(item, item.name)
            yield head
            yield _prose(doc) + "\n"
        elif any(ast.unparse(by) == "property" for by in item.decorator_list):
            yield f"- `{item.name}: {_result(item)}`\n"
    elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Call):
        made = re.fullmatch(r"(\w+)\((\w+)\.(\w+)\)", ast.unparse(item.value))
        if made is not None:
            method = sources.methods(made[2])[made[3]]
            yield _heading(method, ast.unparse(item.targets[0]))
            yield _prose(ast.get_docstring(method) or "") + "\n"


def _heading(function: _Function, name: str) -> str:
    return f"#### `{name}`\n\n{_signature(function, name)}\n"


def _signature(function: _Function, name: str) -> str:
    arguments = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(arguments, _Function)
    args = arguments.args
    args.args = [arg for arg in args.args if arg.arg != "self"]
    parts = [re.sub(r"^(\w+: [^=]+)=", r"\1 = ", part) for part in _split(ast.unparse(args))]
    text = f"{name}({', '.join(parts)}) -> {_result(function)}"
    if len(text) > 90:
        text = f"{name}(\n    " + ",\n    ".join(parts) + f",\n) -> {_result(function)}"
    return f"```text\n{text}\n```"


def _split(arguments: str) -> list[str]:
    """At commas that are in no brackets."""
    parts, depth = [""], 0
    for char in arguments:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _result(function: _Function) -> str:
    """What the blocking shell returns."""
    text = ast.unparse(function.returns) if function.returns is not None else "None"
    text = text.strip("'")
    text = re.sub(r"^Flow\[(.*)\]$", r"\1", text)
    text = re.sub(r"^Items\[(.*)\]$", r"Iterator[\1]", text)
    return "Producer" if text == "ProducerSetup" else text


def _prose(doc: str) -> str:
    """A docstring as Markdown: its `Raises:` and `Args:` become lists."""
    lines: list[str] = []
    in_list = False
    for line in doc.splitlines():
        if line in ("Raises:", "Args:"):
            in_list = True
            lines += [line, ""]
        elif in_list and re.match(r" {4}\S", line):
            lines.append("- " + line.strip())
        elif in_list and line.strip():
            lines.append("  " + line.strip())
        else:
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
