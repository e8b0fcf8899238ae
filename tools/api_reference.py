"""
docs/api.md from the docstrings of the client: `make docs`.

Reads the source and imports nothing. The methods of `Stream` and `AsyncStream` are defined once, as
flows, and appear once. A test compares the page with the output of this module.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "tailrace" / "client"
EXCEPTIONS: Final = ROOT / "src" / "tailrace" / "exceptions.py"
PAGE: Final = ROOT / "docs" / "api.md"

INTRODUCTION: Final = """\
# API reference

Generated from the docstrings by `make docs`. Everything is in `tailrace.client`; `Client`,
`AsyncClient` and `TailraceError` are also in `tailrace`.

Both clients have the same methods. This page shows those of the blocking client. With the
asynchronous client, await the methods that return a result, and iterate with `async for`
(`async for item in stream.tail():`).
"""

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """All classes of the client, by name."""

    def __init__(self) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        for path in (EXCEPTIONS, *sorted(SOURCE.rglob("*.py"))):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    self.classes[node.name] = node

    def methods(self, name: str) -> dict[str, _Function]:
        """The functions of a class and of its base classes."""
        return {item.name: item for item in self.members(name) if isinstance(item, _Function)}

    def members(self, name: str, prefix: str = "") -> list[ast.stmt]:
        """The statements of a class, after those of its base classes that begin with a prefix."""
        node = self.classes.get(name)
        bases = [_name(base) for base in node.bases] if node is not None else []
        found = [self.members(base, prefix) for base in bases if base.startswith(prefix)]
        return [*(item for items in found for item in items), *(node.body if node else [])]


def _name(base: ast.expr) -> str:
    """The name of a base class, without its type arguments."""
    return ast.unparse(base).partition("[")[0]


def page() -> str:
    """The whole page."""
    sources = Sources()
    return "\n".join([INTRODUCTION, *_page(sources)]).rstrip() + "\n"


def _page(sources: Sources) -> Iterator[str]:
    yield "## Clients\n"
    yield from _class(sources, "Client", "AsyncClient")
    yield from _class(sources, "Retry")
    yield "## Streams\n"
    yield from _class(sources, "Stream", "AsyncStream")
    yield from _class(sources, "Reading", "AsyncReading")
    yield "## Producers\n"
    yield from _class(sources, "Producer", "AsyncProducer")
    yield from _class(sources, "Delivery")
    yield from _class(sources, "ProducerClaim")
    yield "## Buckets\n"
    yield from _class(sources, "Bucket", "AsyncBucket")
    yield "## Subscriptions\n"
    yield from _class(sources, "Subscriptions", "AsyncSubscriptions")
    yield from _class(sources, "Subscription", "AsyncSubscription")
    yield from _class(sources, "Wake", "AsyncWake")
    for name in _exported("subscription_values"):
        yield from _class(sources, name)
    yield "## Values\n"
    for name in _exported("values"):
        if name != "ProducerClaim":
            yield from _class(sources, name)
    yield "## Errors\n"
    yield from _class(sources, "TailraceError")
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
    bases = [
        base
        for base in map(_name, node.bases)
        if base in sources.classes and not base.startswith("Base")
    ]
    title = f"`{name}`" + (f", `{twin}`" if twin else "")
    yield (
        f"### {title}" + (f" ({', '.join(f'`{base}`' for base in bases)})" if bases else "") + "\n"
    )
    if doc := ast.get_docstring(node):
        yield _prose(doc) + "\n"
    fields = list(_fields(node))
    if fields:
        yield "\n".join(fields) + "\n"
    for item in sources.members(name, "Base"):
        yield from _member(sources, item)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """The annotated attributes, each with the string below it."""
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
        name, call = ast.unparse(item.targets[0]), ast.unparse(item.value)
        if made := re.fullmatch(r"(?:ResultMethod|IteratorMethod)\((\w+)\.(\w+)\)", call):
            method = sources.methods(made[1])[made[2]]
            yield _heading(method, name)
            yield _prose(ast.get_docstring(method) or "") + "\n"
        elif made := re.fullmatch(r"constructs\((\w+), (\w+)\)", call):
            options = sources.classes[made[1]]
            yield f"#### `{name}`\n\n{_text(name, _parameters(options), made[2])}\n"
            yield _prose(ast.get_docstring(options) or "") + "\n"


def _parameters(node: ast.ClassDef) -> list[str]:
    """The parameters of a dataclass."""
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    return [
        "*" if ast.unparse(field.annotation) == "KW_ONLY" else ast.unparse(field)
        for field in fields
    ]


def _heading(function: _Function, name: str) -> str:
    return f"#### `{name}`\n\n{_signature(function, name)}\n"


def _signature(function: _Function, name: str) -> str:
    arguments = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(arguments, _Function)
    args = arguments.args
    args.args = [arg for arg in args.args if arg.arg != "self"]
    parts = [re.sub(r"^(\w+: [^=]+)=", r"\1 = ", part) for part in _split(ast.unparse(args))]
    return _text(name, parts, _result(function))


def _text(name: str, parts: list[str], result: str) -> str:
    text = f"{name}({', '.join(parts)}) -> {result}"
    if len(text) > 90:
        text = f"{name}(\n    " + ",\n    ".join(parts) + f",\n) -> {result}"
    return f"```text\n{text}\n```"


def _split(arguments: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth = [""], 0
    for char in arguments:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _result(function: _Function) -> str:
    """The type that the blocking client returns."""
    text = ast.unparse(function.returns) if function.returns is not None else "None"
    text = text.strip("'")
    text = re.sub(r"^Flow\[(.*)\]$", r"\1", text)
    text = re.sub(r"^Items\[(.*)\]$", r"Reading[\1]", text)
    return {"S": "Stream", "B": "Bucket"}.get(text, text)


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
