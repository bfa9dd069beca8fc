"""Fixtures of these tests."""

from tests.drawn_once import drawn_once

__all__ = ["drawn_once"]
