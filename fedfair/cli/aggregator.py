"""`fedfair aggregator`: the aggregator's own commands, under the one program."""

from __future__ import annotations

from aggregator.commands import app

__all__ = ["app"]
