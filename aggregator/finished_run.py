"""The run that this folder holds, once it is finished: read for an extension, and set aside for what follows it.

    earlier/<plan>/     the files of a finished run whose plan was extended, as they were

A start by the extended plan moves the finished run's files there. The journal moves last, so that a start that was
interrupted on the way finds it, and moves what is left.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from contextlib import closing
from pathlib import Path

from aggregator.journal import Journal, check_free
from aggregator.records import RunPaths
from fedfair.errors import StateError
from fedfair.plan.derived import earlier_plans
from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.run.initial_model import InitialModel
from fedfair.run.training_run import TrainingRun
from fedfair.workspace.extension import FinishedRun

EARLIER = "earlier"
DIGITS = 16


def journal_in(folder: Path) -> Path:
    """Return the journal of the run that a folder holds.

    Raises:
        StateError: there is none.
    """
    path = RunPaths(folder).journal
    if not path.is_file() or not path.stat().st_size:
        raise StateError(
            f"{path} is missing, so nobody knows where the run ended",
            "run this command in the folder in which the aggregator ran, or name that folder with --folder",
        )
    return path


def finished_run(folder: Path, plan: Plan, before: InitialModel) -> FinishedRun:
    """Return the run that a folder holds.

    Args:
        folder: where the aggregator ran.
        plan: the plan of the run.
        before: what the plan is bound to.

    Raises:
        StateError: there is no journal, or it is another plan's, or damaged.
        FedfairError: an aggregator runs here.
    """
    journal = Journal.open(journal_in(folder), before.plan_digest, uuid.uuid4().hex, time.time())
    with closing(journal):
        entry = journal.latest()
        run = TrainingRun(plan, before.layout, before.schema, before.vector, carried=before.carried)
        if entry is not None:
            run.restore(entry.training_run)
        return FinishedRun(run.state, run.lost_rounds)


def set_aside(paths: RunPaths, plan: Plan) -> Path | None:
    """Move the files of the run that a plan continues from; return where they are, or None where there are none.

    Args:
        paths: of the run.
        plan: the extended plan.

    Raises:
        StateError: they cannot be moved.
        FedfairError: an aggregator runs here.
    """
    found = _plan_of(paths.journal)
    if found is None or format_digest(found) not in earlier_plans(plan):
        return None
    check_free(paths.journal)
    target = paths.folder / EARLIER / found.hex()[:DIGITS]
    logs = (paths.metrics, paths.notes, paths.departures, paths.refusals, paths.notified)
    rotated = [each for path in logs for each in sorted(path.parent.glob(f"{path.name}*"))]
    try:
        for path in (paths.result, *rotated, paths.received, paths.save):
            if path.exists():
                kept = target / path.relative_to(paths.folder)
                kept.parent.mkdir(parents=True, exist_ok=True)
                path.rename(kept)
    except OSError as error:
        raise StateError(
            f"the files of the finished run cannot be moved to {target}: {error.strerror}",
            "let this user write there, or move them away, and start again",
        ) from error
    return target


def _plan_of(journal: Path) -> bytes | None:
    """Return the digest of the plan that a journal is of; None where there is none that can be read."""
    if not journal.is_file() or not journal.stat().st_size:
        return None
    try:
        with closing(sqlite3.connect(f"{journal.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT plan_digest FROM run").fetchone()
    except sqlite3.Error:
        # The start itself says what is wrong with it.
        return None
    return None if row is None else bytes(row[0])
