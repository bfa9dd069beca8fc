"""Secure aggregation at work, as `fedfair demo secagg` shows it.

Usage: python examples/secagg_demo [--output PAGE.html] [--json]

To see how it is done, read `consortium.py` beside this file: five `Participant`s and one `Server`, with messages
passed by hand.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedfair.cli.demo import app
from fedfair.process.terminal import run_app

run_app(app, ["secagg", *sys.argv[1:]])
