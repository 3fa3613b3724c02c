"""What is brought along is named as `file.py:Name` or `package.module:Name`: found, loaded, and hashed.

One loader for layers and for tasks of one's own. A file is looked for where the command was started, then in the
folders of `sys.path`, so that another process that was told the folder finds the same file.
"""

import ast
import contextlib
import difflib
import functools
import hashlib
import importlib
import importlib.util
import sys
import sysconfig
import traceback
import types
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from icl import _checks
from icl._bounds import validated

_OWN = {Path(__file__).resolve().parents[1] / name for name in ("icl", "icl_bench", "icl_book")}

#: What this process has loaded, by file, as it was then.
_loaded: dict[Path, str] = {}


def nearest(name: str, known: list[str]) -> str:
    """Which of these was perhaps meant: "; did you mean a or b?", or "" if none is near."""
    _checks.text("name", name)
    _checks.names("known", known)
    found = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(found)}?" if found else ""


@validated
def load(spec: str) -> tuple[Any, Path]:
    """What a spec names, and the file that it is written in.

    The file's folder (of a package, the folder that the package is in) is put in front of `sys.path`, as Python does
    for a program, so that it can import what lies beside it. A file that has changed since is loaded anew.

    Args:
        spec: `file.py:Name` or `package.module:Name`.

    Raises:
        ValueError: if it is written otherwise, if file, module or name are not there, or if the file cannot be
            imported: with the reason, and the line.
    """
    where, _, name = spec.rpartition(":")
    if not where.strip() or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"spec must be file.py:Name or package.module:Name, got {spec!r}")
    is_file = where.endswith(".py") or "/" in where or "\\" in where
    module = _from_file(where, spec) if is_file else _from_module(where, spec)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            own = [each for each in vars(found) if not each.startswith("_")]
            raise ValueError(f"spec must name something that is in {where}, got {name!r}{nearest(part, own)}")
        found = getattr(found, part)
    file = getattr(module, "__file__", None)
    if file is None:
        raise ValueError(f"spec must name something written in a file, got {spec!r}, a folder without __init__.py")
    path = Path(file).resolve()
    if not is_file and _loaded.setdefault(path, source_hash(path)) != source_hash(path):
        # Its hash would not be that of what runs.
        raise ValueError(f"spec must be as it was when it was first imported, got {spec!r}, changed: restart Python")
    return found, path


def _from_file(where: str, spec: str) -> types.ModuleType:
    path = Path(where).expanduser()
    tried = [path] if path.is_absolute() else [Path.cwd() / path, *(Path(folder) / path for folder in sys.path)]
    file = next((each.resolve() for each in tried if each.is_file()), None)
    if file is None:
        near = nearest(path.name, [each.name for each in tried[0].parent.glob("*.py")])
        raise ValueError(f"spec must name a file that is there, got {spec!r}: no {tried[0]}{near}")
    if file.suffix != ".py":
        raise ValueError(f"spec must name a Python file, got {spec!r}")
    home = package_root(file)
    if str(home) not in sys.path:
        sys.path.insert(0, str(home))
    if file.parent != home:
        # Within a package a file may import from beside it by a dot.
        return _from_module(".".join(file.relative_to(home).with_suffix("").parts), spec)
    # Named after its place and content: a file called torch.py hides nothing, and one that changed is another module.
    now = source_hash(file)
    alias = f"{file.stem}_{hashlib.sha256(f'{file} {now}'.encode()).hexdigest()[:8]}"
    if alias in sys.modules:
        return sys.modules[alias]
    if _loaded.get(file, now) != now:
        # What it imports from beside it may have changed, too.
        own = _sources(file)
        for name in [name for name, each in sys.modules.items() if _file_of(each) in own]:
            del sys.modules[name]
    _loaded[file] = now
    told = importlib.util.spec_from_file_location(alias, file)
    assert told is not None
    assert told.loader is not None
    module = importlib.util.module_from_spec(told)
    sys.modules[alias] = module
    try:
        with _importing(spec, file):
            told.loader.exec_module(module)
    except BaseException:
        del sys.modules[alias]
        raise
    return module


def _file_of(module: Any) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _from_module(where: str, spec: str) -> types.ModuleType:
    if not all(part.isidentifier() for part in where.split(".")):
        raise ValueError(f"spec must be file.py:Name or package.module:Name, got {spec!r}")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with _importing(spec):
            return importlib.import_module(where)
    except ModuleNotFoundError as error:
        lacking = error.name or ""
        if where != lacking and not where.startswith(f"{lacking}."):
            raise
        as_file = Path(*where.split(".")).with_suffix(".py")
        hint = f"; did you mean {as_file}:{spec.rpartition(':')[2]}?" if as_file.is_file() else ""
        raise ValueError(
            f"spec must name a module that is installed or lies in {Path.cwd()}, got {spec!r}: no {lacking}{hint}"
        ) from error


@contextlib.contextmanager
def _importing(spec: str, file: Path | None = None) -> Iterator[None]:
    """Errors of somebody's own file, as one line that says where."""
    try:
        yield
    except ModuleNotFoundError as error:
        asked = spec.rpartition(":")[0]
        if file is None and error.name and (asked == error.name or asked.startswith(f"{error.name}.")):
            raise
        raise ValueError(f"spec must be importable, got {spec!r}: it needs {error.name}, which is not here") from error
    except Exception as error:
        if isinstance(error, SyntaxError):
            at = f" ({error.filename}, line {error.lineno})"
        else:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
            at = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames[1:] else ""
        message = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"spec must be importable, got {spec!r}: {type(error).__name__}: {message}{at}") from error


@validated
def package_root(file: Path) -> Path:
    """The folder that has to be on `sys.path` for a file's module: its own, or that of the outermost package.

    Args:
        file: a Python file.
    """
    folder = file.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


@validated
def source_hash(file: Path) -> str:
    """Hash of all that decides what a file defines, as far as it is one's own.

    The file, the package it is in, and what they import from the folder that these lie in; of an installed package its
    name and version. What else it uses is not in it: torch, and this library, which runs count for themselves.

    Args:
        file: a Python file that is there.
    """
    file = file.resolve()
    if not file.is_file():
        raise ValueError(f"file must be a Python file that is there, got {file}")
    if (version := _installed(file)) is not None:
        return hashlib.sha256(version.encode()).hexdigest()
    home, digest = package_root(file), hashlib.sha256()
    for each, source in sorted(_sources(file).items()):
        digest.update(f"{each.relative_to(home).as_posix()}\0{len(source)}\0".encode() + source)
    return digest.hexdigest()


def _sources(file: Path) -> dict[Path, bytes]:
    """What a file, the package it is in, and what they import from beside it are written as."""
    home, found = package_root(file), dict[Path, bytes]()
    ahead = _together(file, home)
    while ahead:
        each = ahead.pop()
        if each not in found:
            found[each] = each.read_bytes()
            ahead += [near for name in _imports(found[each]) for near in _beside(name, home)]
    return found


def _installed(file: Path) -> str | None:
    """Name and version of the installed package that a file is of; None for one's own."""
    for key in ("purelib", "platlib", "stdlib"):
        folder = Path(sysconfig.get_path(key)).resolve()
        if file.is_relative_to(folder):
            top = file.relative_to(folder).parts[0].removesuffix(".py")
            if key == "stdlib":
                return f"{top} of Python {sys.version_info[:3]}"
            names = sorted(set(_distributions().get(top, [])))
            if names:
                return ", ".join(f"{name} {metadata.version(name)}" for name in names)
    return None


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Names of the installed distributions of each package; to look through them takes a quarter of a second."""
    return metadata.packages_distributions()


def _together(file: Path, home: Path) -> list[Path]:
    """A file, or all of the package that it is in."""
    if file.parent == home:
        return [file]
    return sorted((home / file.relative_to(home).parts[0]).rglob("*.py"))


def _beside(name: str, home: Path) -> list[Path]:
    """What an import of this name finds in a folder, this library apart."""
    package, file = home / name, home / f"{name}.py"
    if package.resolve() in _OWN:
        return []
    if (package / "__init__.py").is_file():
        return sorted(package.rglob("*.py"))
    return [file] if file.is_file() else []


def _imports(source: bytes) -> set[str]:
    """First parts of the names that a file imports; none of one that cannot be read, whose import fails by itself."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found
