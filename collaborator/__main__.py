"""`python -m collaborator`: the same commands as `fedfair collaborator`."""

from __future__ import annotations

from collaborator.commands import app
from fedfair.report.terminal import run_app

if __name__ == "__main__":
    run_app(app)
