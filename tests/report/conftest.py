"""Fixtures of these tests."""

from tests.drawn_once import drawn, drawn_once, undrawn

__all__ = ["drawn", "drawn_once", "undrawn"]
