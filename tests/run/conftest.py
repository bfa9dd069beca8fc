"""Fixtures of these tests."""

from tests.drawn_once import undrawn

__all__ = ["undrawn"]
