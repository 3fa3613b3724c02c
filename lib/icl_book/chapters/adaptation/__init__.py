"""Experiments of the chapters of Part I."""
