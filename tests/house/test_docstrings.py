"""What all docstrings of the library keep to, so that their pages can be made from them."""

import ast
import re
from pathlib import Path

import icl

ROOT = Path(icl.__file__).parents[1]
MODULES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py"))
    if path.name != "notation.py"
}


# A bar where markup may begin, closed where it may end: the reference pages would look for a substitution of that name.
SUBSTITUTION = re.compile(r"""(?:^|[\s'"(\[{<\-/:])(\|[^\s|](?:[^|]*[^\s|])?\|)(?=$|[\s'")\]}>\-/\\:.,;!?])""", re.M)


def test_no_length_between_bars_in_a_docstring():
    """|x| in a public docstring is no length on the reference pages but a substitution that nobody defined.

    Seen: bars around x alone, after a slash and in brackets; powers such as gamma^|i-j| and || x || are text.
    """
    for text in ("u = x / |x|", "y/|x|", "(|x - y|)"):
        assert SUBSTITUTION.search(text)
    for text in ("gamma^|i-j|", "beta = mu / ||x_t||^2", "Stack | Normalised | None"):
        assert not SUBSTITUTION.search(text)
    found = {
        f"{file}:{getattr(node, 'name', 'module')}": bars
        for file, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and not getattr(node, "name", "").startswith("_")
        and (bars := SUBSTITUTION.findall(ast.get_docstring(node) or ""))
    }
    assert not found
