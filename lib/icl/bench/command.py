"""The command line, `icl-bench`."""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    raise NotImplementedError
