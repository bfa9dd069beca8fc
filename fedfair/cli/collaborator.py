"""`fedfair collaborator`: the collaborator's own commands, under the one program."""

from __future__ import annotations

from collaborator.commands import app

__all__ = ["app"]
