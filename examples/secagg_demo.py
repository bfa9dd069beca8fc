"""Secure aggregation at work, as `fedfair demo secagg` shows it.

Usage: python examples/secagg_demo.py [--output PAGE.html] [--json]

To see how it is done, read `fedfair/cli/secagg_demo/consortium.py`: five `Participant`s and one `Server`, with
messages passed by hand.
"""

import sys

from fedfair.cli.demo import app
from fedfair.report.terminal import run_app

run_app(app, ["secagg", *sys.argv[1:]])
