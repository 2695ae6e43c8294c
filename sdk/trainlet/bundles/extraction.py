"""A step in a script or notebook cell: the function and what it really uses, written as one readable module.

The code is analysed, not executed: free names are followed to their definitions (functions, classes, imports, simple
constants), in the order of the source. What cannot be written as source is an error that names it.
"""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import io
import linecache
import math
import symtable
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainlet import locations
from trainlet.bundles import packaging
from trainlet.bundles.origins import Origins, Stretch
from trainlet.bundles.sources import OURS, Sources, versions_of
from trainlet.core.errors import UserError
from trainlet.core.specs import Entry, dns_label

_BUILTINS = frozenset(dir(builtins))
_MODULE_NAMES = frozenset({"__name__", "__file__", "__doc__", "__annotations__", "__builtins__"})


@dataclass
class _Module:
    """The module that is being written."""

    imports: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, tuple[int, str]] = field(default_factory=dict)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    future: bool = False


def extract(function: Callable[..., Any]) -> Sources:
    """Return the sources of a function of `__main__`, of a cell, or one that is defined inside another function."""
    module = _Module()
    _add(function.__name__, function, function, module)
    name = _module_name(function)
    text = _write(module)
    files, installed = packaging.local_modules(module.modules)
    files[f"{name}.py"] = text.encode()
    entry = Entry(module=name, qualname=function.__name__)
    return Sources(files, entry, frozenset(installed), versions_of(installed), _origins(f"{name}.py", text, module))


def _origins(name: str, text: str, module: _Module) -> Origins:
    """Find each definition in the text that was written; its lines follow each other as in its own file."""
    stretches: list[Stretch] = []
    written = text.splitlines()
    at = 0
    for one, (_, definition) in sorted(module.definitions.items(), key=lambda pair: pair[1][0]):
        lines = definition.strip("\n").splitlines()
        at = next(start for start in range(at, len(written)) if written[start : start + len(lines)] == lines)
        if one in module.places:
            stretches.append(Stretch(at + 1, len(lines), *module.places[one]))
        at += len(lines)
    return Origins(name, text, tuple(stretches))


def _module_name(function: Callable[..., Any]) -> str:
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None) if function.__module__ == "__main__" else None
    stem = Path(path).stem if path else "notebook" if function.__module__ == "__main__" else function.__module__
    return "step_" + dns_label(stem.rpartition(".")[2]).replace("-", "_")


def _write(module: _Module) -> str:
    parts: list[str] = []
    if module.future:
        parts.append("from __future__ import annotations")
    if module.imports:
        parts.append("\n".join(sorted(set(module.imports.values()))))
    if module.constants:
        parts.append("\n".join(f"{name} = {text}" for name, text in sorted(module.constants.items())))
    parts += [text for _, text in sorted(module.definitions.values(), key=lambda one: one[0])]
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


def _add(name: str, value: Any, owner: Callable[..., Any], module: _Module) -> None:
    """Add the definition of a function or class, then what it uses."""
    if name in module.definitions:
        return
    plain = value if isinstance(value, type) else inspect.unwrap(value)
    tree, text, line = _source_of(plain, name)
    module.definitions[name] = (_position(name, plain, line), text)
    module.places[name] = (inspect.getsourcefile(plain) or "?", line)
    module.future |= _has_future(plain)
    module.modules |= packaging.imported(text.encode())
    scope = _names_around(plain)
    for used in sorted(_free_names(text, tree)):
        if used == name or used in _MODULE_NAMES:
            continue
        if used in scope:
            _add_value(used, scope[used], plain, module, line)
        elif used not in _BUILTINS:
            # A name that nothing defines: the user's NameError, at the place where Python would raise it.
            continue


def _position(name: str, value: Any, line: int) -> int:
    """Return where a definition belongs: in the order in which its module bound the names, which cells share."""
    around = value.__globals__ if inspect.isfunction(value) else vars(sys.modules.get(value.__module__, builtins))
    names = list(around)
    return names.index(name) if name in around else len(names) + line


def _add_value(name: str, value: Any, owner: Any, module: _Module, line: int) -> None:
    if name in module.definitions or name in module.imports or name in module.constants:
        return
    if isinstance(value, types.ModuleType):
        dotted = _dotted_imports(name, owner) if value.__name__ == name else []
        for path in dotted:
            module.imports[path] = f"import {path}"
        if not dotted:
            renamed = "" if value.__name__ == name else f" as {name}"
            module.imports[name] = f"import {value.__name__}{renamed}"
        _note_module(value.__name__, module)
        return
    home = getattr(value, "__module__", None)
    wrapped = getattr(value, "__wrapped__", value)
    if inspect.isfunction(wrapped) or inspect.isclass(value):
        if wrapped.__name__ == "<lambda>":
            raise _cannot(name, owner, line, "a lambda", "write it as a def")
        if inspect.iscoroutinefunction(wrapped):
            raise _cannot(name, owner, line, "an async function", "write it as a plain def")
        same = home == getattr(owner, "__module__", None)
        if same and wrapped.__name__ == name:
            _add(name, value, owner, module)
            return
        if home is not None and not same:
            _import_from(name, value, home, module)
            return
        if same:
            _add_after(name, wrapped.__name__, wrapped.__name__, value, owner, module)
            return
    if isinstance(value, enum.Enum) and type(value).__module__ == getattr(owner, "__module__", None):
        kind = type(value).__name__
        _add_after(name, kind, f"{kind}.{value.name}", type(value), owner, module)
        return
    text = _constant(value, module)
    if text is not None:
        module.constants[name] = text
        return
    if (
        home is not None
        and hasattr(value, "__qualname__")
        and home not in ("__main__", getattr(owner, "__module__", None))
    ):
        _import_from(name, value, home, module)
        return
    imported = _found_in_a_module(name, value, owner)
    if imported is not None:
        module.imports[name] = f"from {imported} import {name}"
        _note_module(imported, module)
        return
    raise _cannot(name, owner, line, *_described(value, _title(owner)))


def _described(value: Any, inside: str) -> tuple[str, str]:
    """Return what a value that cannot travel is, and what to write instead."""
    if isinstance(value, io.IOBase):
        return "an open file", f"open it inside {inside}, and pass its path as an argument if it varies"
    made_of = "pass what it is made of as an argument (values, arrays, or files as tl.Dataset)"
    return f"a {type(value).__module__}.{type(value).__qualname__}", f"make it inside {inside}, or {made_of}"


def _add_after(name: str, defined: str, text: str, value: Any, owner: Any, module: _Module) -> None:
    """Write `name = text` right behind the definition that it needs."""
    _add(defined, value, owner, module)
    module.definitions[name] = (module.definitions[defined][0], f"{name} = {text}")


def _dotted_imports(name: str, owner: Any) -> list[str]:
    """Return the submodules that the owner's file imports as `import name.sub`: they are reached through `name`."""
    plain = [node for node in _import_lines(owner) if isinstance(node, ast.Import)]
    paths = [alias.name for node in plain for alias in node.names if alias.asname is None]
    return [path for path in paths if path.startswith(f"{name}.")]


def _import_from(name: str, value: Any, home: str, module: _Module) -> None:
    real = getattr(value, "__qualname__", name)
    if home.partition(".")[0] in OURS:
        home = "trainlet"
    module.imports[name] = f"from {home} import {real}" + ("" if real == name else f" as {name}")
    _note_module(home, module)


def _note_module(name: str, module: _Module) -> None:
    module.modules.add(name.partition(".")[0])


def _found_in_a_module(name: str, value: Any, owner: Any) -> str | None:
    """Return a loaded module, other than the owner's, that has this very object under this name (`from x import y`)."""
    for line in _import_lines(owner):
        if not isinstance(line, ast.ImportFrom) or line.level != 0:
            continue
        if line.module and any((alias.asname or alias.name) == name for alias in line.names):
            return line.module
    return None


def _import_lines(owner: Any) -> list[ast.Import | ast.ImportFrom]:
    try:
        text = "".join(inspect.findsource(owner)[0])
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def _constant(value: Any, module: _Module) -> str | None:
    """Return source text for a simple constant, or None."""
    if value is None or type(value) in (bool, int, str, bytes, complex):
        return repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if isinstance(value, enum.Enum) and type(value).__module__ != "__main__":
        _import_from(type(value).__name__, type(value), type(value).__module__, module)
        return f"{type(value).__name__}.{value.name}"
    if type(value) in (list, tuple, set, frozenset):
        parts = [
            _constant(item, module)
            for item in (sorted(value, key=repr) if isinstance(value, set | frozenset) else value)
        ]
        if any(part is None for part in parts):
            return None
        inside = ", ".join(part for part in parts if part is not None)
        if type(value) is list:
            return f"[{inside}]"
        if type(value) is tuple:
            return f"({inside},)" if parts else "()"
        return f"{type(value).__name__}([{inside}])"
    if type(value) is dict:
        pairs = [(_constant(key, module), _constant(item, module)) for key, item in value.items()]
        if any(key is None or item is None for key, item in pairs):
            return None
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    return None


def _names_around(value: Any) -> dict[str, Any]:
    """Return the globals and closure variables that a function or class can see."""
    if isinstance(value, type):
        around = dict(vars(sys.modules[value.__module__])) if value.__module__ in sys.modules else {}
        for member in vars(value).values():
            plain = getattr(member, "__func__", member)
            if inspect.isfunction(plain):
                around |= _names_around(plain)
        return around
    closure = inspect.getclosurevars(value).nonlocals if value.__closure__ else {}
    return {**value.__globals__, **closure}


def _globals_of(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a scope and those inside it take from outside of the whole definition."""
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return names.union(*map(_globals_of, table.get_children()))


def _free_names(text: str, tree: ast.AST) -> set[str]:
    """Return every name that is read from outside, decorators, defaults and annotations included."""
    top = symtable.symtable(text, "step", "exec")
    names = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()} | _globals_of(top)
    for node in ast.walk(tree):
        annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                quoted = ast.parse(annotation.value, mode="eval")
            except SyntaxError:
                continue
            names |= {inner.id for inner in ast.walk(quoted) if isinstance(inner, ast.Name)}
    return names


def _source_of(value: Any, name: str) -> tuple[ast.AST, str, int]:
    linecache.checkcache(getattr(getattr(value, "__code__", None), "co_filename", None))
    try:
        lines, line = inspect.getsourcelines(value)
        text = _at_the_margin("".join(lines))
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError) as error:
        raise UserError(
            f"The source of {name!r} cannot be read ({error}). Define the step in a file or a notebook cell, not through "
            "exec or on the prompt."
        ) from error
    return tree, text, line


def _at_the_margin(text: str) -> str:
    """Move an indented definition to the left margin. Lines inside of strings stay: they are part of a value."""
    margin = text[: len(text) - len(text.lstrip(" \t"))]
    if not margin:
        return text
    inside: set[int] = set()  # numbered as in `text`, which is one line shorter than what is parsed
    for node in ast.walk(ast.parse("if True:\n" + text)):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)):
            inside.update(range(node.lineno, node.end_lineno or node.lineno))
    lines = text.splitlines(keepends=True)
    return "".join(line if at in inside else line.removeprefix(margin) for at, line in enumerate(lines, 1))


def _has_future(value: Any) -> bool:
    code = getattr(value, "__code__", None)
    if code is not None:
        import __future__

        return bool(code.co_flags & __future__.annotations.compiler_flag)
    return any(_has_future(member) for member in vars(value).values() if inspect.isfunction(member))


def _title(owner: Any) -> str:
    return f"{getattr(owner, '__name__', 'the step')}()"


def _cannot(name: str, owner: Any, line: int, kind: str, fix: str) -> UserError:
    try:
        path = inspect.getsourcefile(owner) or "?"
    except TypeError:
        path = "?"
    try:
        tree, _, first = _source_of(owner, _title(owner))
        uses = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
        at = first + min(uses) - 1 if uses else line
    except UserError:
        at = line
    return UserError(
        f"{locations.place(path, at)}: {_title(owner)} uses {name!r}, which is {kind} and cannot travel; {fix}."
    )
