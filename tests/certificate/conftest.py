"""Fixtures of these tests."""

from tests.drawn_once import drawn_once, undrawn

__all__ = ["drawn_once", "undrawn"]
