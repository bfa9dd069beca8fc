"""`make fuzz`: reads broken messages and files of every kind, and exits with 1 if one outcome is a fault of ours.

Seeded and bounded in time: `--seconds` is shared among the kinds, and a kind that takes less leaves the rest to
the next ones. `--messages` is for all kinds of messages together, `--files` for each kind of file.
"""

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import run_kind, save
from tests.fuzz.kinds import KINDS

FINDINGS = Path("build/fuzz")


def main() -> int:
    """Run the kinds that are asked for, and tell what came of each."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="over all kinds of messages")
    parser.add_argument("--files", type=int, default=100_000, help="of each kind of file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=14_400, help="for everything, at most")
    parser.add_argument("--only", nargs="*", choices=[kind.name for kind in KINDS], help="these kinds alone")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if not arguments.only or kind.name in arguments.only]
    messages = max(1, sum(kind.is_message for kind in kinds))
    until, total, findings = time.monotonic() + arguments.seconds, 0, 0
    for left, kind in zip(range(len(kinds), 0, -1), kinds, strict=True):
        count = -(-arguments.messages // messages) if kind.is_message else arguments.files
        came = run_kind(kind, count, arguments.seed, max(0.0, until - time.monotonic()) / left)
        total, findings = total + came.outcomes.total(), findings + len(came.findings)
        sys.stdout.write(came.line() + "\n")
        for where, (words, _) in came.findings.items():
            sys.stdout.write(f"  {where}\n    " + words.replace("\n", "\n    ") + "\n")
        for path in save(came, FINDINGS):
            sys.stdout.write(f"  kept as {path}: mend it, then put it into tests/fuzz/corpus/{kind.name}/\n")
        sys.stdout.flush()
    sys.stdout.write(f"{total} read, {findings} finding(s), seed {arguments.seed}\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
