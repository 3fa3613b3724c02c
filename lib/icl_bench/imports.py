"""User code named as `file.py:Name` or `package.module:Name`: import and source hash.

One loader for layers and for user-defined tasks. A file is looked up in the working directory, then in the folders of
`sys.path`, so that another process that has the folder on its path finds the same file.
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

#: Modules loaded by this process, by file, with the sources they were loaded from.
_loaded: dict[Path, str] = {}


@validated
def nearest(name: str, known: list[str]) -> str:
    """Suggest close matches to a name: "; did you mean a or b?", or "" if none is close."""
    _checks.text("name", name)
    _checks.names("known", known)
    matches = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(matches)}?" if matches else ""


@validated
def load(spec: str) -> tuple[Any, Path]:
    """Import the object that a spec names; return it and its file.

    The file's folder (of a package, the folder that the package is in) is put in front of `sys.path`, as Python does
    for a program, so that it can import modules beside it. A file that has changed since is reloaded.

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
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            names = [each for each in vars(target) if not each.startswith("_")]
            raise ValueError(f"spec must name something that is in {where}, got {name!r}{nearest(part, names)}")
        target = getattr(target, part)
    file = getattr(module, "__file__", None)
    if file is None:
        raise ValueError(f"spec must name something written in a file, got {spec!r}, a folder without __init__.py")
    path = Path(file).resolve()
    if not is_file and _loaded.setdefault(path, source_hash(path)) != source_hash(path):
        # The hash would not be that of the running code.
        raise ValueError(f"spec must be as it was when it was first imported, got {spec!r}, changed: restart Python")
    return target, path


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
        # A file in a package may use relative imports.
        return _from_module(".".join(file.relative_to(home).with_suffix("").parts), spec)
    # Module name from path and content hash: a file torch.py shadows nothing, and a changed file is a new module.
    now = source_hash(file)
    alias = f"{file.stem}_{hashlib.sha256(f'{file} {now}'.encode()).hexdigest()[:8]}"
    if alias in sys.modules:
        return sys.modules[alias]
    if _loaded.get(file, now) != now:
        # Modules that it imports from its folder may have changed too.
        sources = _sources(file)
        for name in [name for name, each in sys.modules.items() if _file_of(each) in sources]:
            del sys.modules[name]
    _loaded[file] = now
    module_spec = importlib.util.spec_from_file_location(alias, file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[alias] = module
    try:
        with _importing(spec, file):
            module_spec.loader.exec_module(module)
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
    """Convert import errors of user code to one line with the place."""
    try:
        yield
    except ModuleNotFoundError as error:
        target = spec.rpartition(":")[0]
        if file is None and error.name and (target == error.name or target.startswith(f"{error.name}.")):
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
    """Import root of a file: its own folder, or the parent of its outermost package.

    Args:
        file: a Python file.
    """
    folder = file.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


@validated
def source_hash(file: Path) -> str:
    """Hash of a user file's source and of the local modules it imports.

    It covers the file, its package, and their imports from the same folder; for an installed package, its name and
    version. Other dependencies are not included: torch, and this library, which a run hashes itself.

    Args:
        file: an existing Python file.
    """
    file = file.resolve()
    if not file.is_file():
        raise ValueError(f"file must be a Python file that is there, got {file}")
    if (version := _installed_version(file)) is not None:
        return hashlib.sha256(version.encode()).hexdigest()
    home, digest = package_root(file), hashlib.sha256()
    for each, source in sorted(_sources(file).items()):
        digest.update(f"{each.relative_to(home).as_posix()}\0{len(source)}\0".encode() + source)
    return digest.hexdigest()


def _sources(file: Path) -> dict[Path, bytes]:
    """Sources of a file, of its package, and of their imports from the same folder."""
    home, sources = package_root(file), dict[Path, bytes]()
    ahead = _package_files(file, home)
    while ahead:
        each = ahead.pop()
        if each not in sources:
            sources[each] = each.read_bytes()
            ahead += [near for name in _imports(sources[each]) for near in _local_files(name, home)]
    return sources


def _installed_version(file: Path) -> str | None:
    """Name and version of the installed package that contains a file; None for a user's own file."""
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
    """Installed distributions by package, cached: the scan takes a quarter of a second."""
    return metadata.packages_distributions()


def _package_files(file: Path, home: Path) -> list[Path]:
    """A file, or every file of its package."""
    if file.parent == home:
        return [file]
    return sorted((home / file.relative_to(home).parts[0]).rglob("*.py"))


def _local_files(name: str, home: Path) -> list[Path]:
    """Files that an import of this name finds in a folder, this library excluded."""
    package, file = home / name, home / f"{name}.py"
    if package.resolve() in _OWN:
        return []
    if (package / "__init__.py").is_file():
        return sorted(package.rglob("*.py"))
    return [file] if file.is_file() else []


def _imports(source: bytes) -> set[str]:
    """Top-level names that a file imports; none if it does not parse, as its import fails anyway."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names
