"""Docs that fail the tests when they drift."""
