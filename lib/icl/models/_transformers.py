"""The package transformers, which is optional."""

from typing import Any


def import_transformers() -> Any:
    """Import transformers; ModuleNotFoundError says how to install it."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "transformers is missing: pip install 'icl-book[language]'", name=error.name
        ) from error
    return transformers
