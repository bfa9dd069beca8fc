"""`python -m aggregator`: the same commands as `fedfair aggregator`, without anything that needs torch."""

from __future__ import annotations

from aggregator.commands import app
from fedfair.report.terminal import run_app

if __name__ == "__main__":
    run_app(app)
