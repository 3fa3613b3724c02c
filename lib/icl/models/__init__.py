"""The recurrences as functions, and the thin modules that give them trainable parameters."""

from icl.models import gla, linear_attention

__all__ = ["gla", "linear_attention"]
