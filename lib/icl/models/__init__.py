"""The recurrences as functions, and the thin modules that give them trainable parameters."""

from icl.models import causal, delta, gated, gla, linear_attention, polynomial, stack, streams

__all__ = ["causal", "delta", "gated", "gla", "linear_attention", "polynomial", "stack", "streams"]
