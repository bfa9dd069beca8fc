"""Everything that must be right before the aggregator listens, gathered from files.

The model before round 1 comes from the workspace, as a file beside the plan: no process of the aggregator loads
torch, or runs code that the plan names. Nothing here is left half done: a fault ends the start with a sentence.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from aggregator.admission import Admission, check_roster_complete
from aggregator.finished_run import set_aside
from aggregator.journal import Journal, JournalEntry, forget
from aggregator.records import RunPaths, RunRecords
from fedfair.aggregation.masking_terms import guarantee
from fedfair.aggregation.model_layout import Layout
from fedfair.errors import StateError
from fedfair.identity.roster import parse_roster
from fedfair.identity.store import SiteIdentity, load_site_identity
from fedfair.ids import AGGREGATOR, FederationName
from fedfair.news.event import News
from fedfair.news.run import EarlierRunKept, IdentityWarned, ProtectionStated, RunContinued
from fedfair.plan.deployment import check_deployment
from fedfair.plan.derived import evaluates_exactly, is_masked, is_unevaluated, sites_remember
from fedfair.plan.digest import format_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.process.open_files import MIN_OPEN_FILES, allow_open_files
from fedfair.rounds.continued import Continued
from fedfair.rounds.events import UnfinishedSum
from fedfair.rounds.secagg_session import is_due
from fedfair.rounds.state_steps import LastOpened
from fedfair.run.initial_model import InitialModel, read_initial_model
from fedfair.run.saved_model import ModelOrigin, evaluation_run, load_saved
from fedfair.run.training_run import TrainingRun
from fedfair.store.long_vectors import VectorRoom
from fedfair.store.spilled import SpilledVectors

FILES_OF_A_SITE, OTHER_FILES = 3, 256
"""Open files of the process: a record, its lock and a connection for each collaborator, and all others."""

CANNOT_REPEAT = "its rounds cannot be repeated: each site keeps control variates or a threshold of the newest one"


@dataclass(frozen=True, slots=True)
class Start:
    """The operator's options for a start.

    Attributes:
        plan: the plan's file.
        folder: where the files of the run go.
        cert_folder: where the aggregator's identity is.
        fresh: forget the run that was recorded in the folder, if any.
        model: evaluate this saved model, and train nothing; None for a whole run.
        repeats_rounds: repeat the rounds that an older copy of the journal has lost, instead of stopping.
        passphrase: of the aggregator's encrypted keys; None where they are not encrypted.
    """

    plan: Path
    folder: Path
    cert_folder: Path
    fresh: bool = False
    model: Path | None = None
    repeats_rounds: bool = False
    passphrase: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is ready to be driven."""

    plan: Plan
    plan_digest: bytes
    layout: Layout
    schema: FeatureSchema
    training_run: TrainingRun
    records: RunRecords
    last_sum_number: int
    continued: Continued | None
    unfinished: UnfinishedSum | None
    opened: LastOpened | None
    identity: SiteIdentity
    admission: Admission
    passphrase: bytes | None = field(default=None, repr=False)


def prepare(
    start: Start, publish: Callable[[News], None], bind: Callable[[Path], InitialModel] | None = None
) -> Run:
    """Check and load everything.

    Args:
        start: what the operator asked for.
        publish: takes warnings and news for the operator.
        bind: from the plan's file to what it is bound to; by default the file beside the plan says it.

    Raises:
        FedfairError: something is missing or wrong; nothing was started.
    """
    plan = _checked_plan(start)
    promised = ProtectionStated(guarantee(plan) if is_masked(plan) else "")
    identity = load_site_identity(start.cert_folder, AGGREGATOR, datetime.now(UTC), start.passphrase)
    publish(promised)
    for warning in identity.warnings:
        publish(IdentityWarned(warning))
    roster = parse_roster(plan.federation.roster)
    check_roster_complete(roster, plan.federation.collaborators)
    binding = (bind or initial_binding)(start.plan)
    paths = RunPaths(start.folder)
    kept = set_aside(paths, plan)
    if kept is not None:
        publish(EarlierRunKept(kept))
    training_run = _training_run(plan, binding, start.model, SpilledVectors(paths.save))
    journal = _open_journal(paths, binding.plan_digest, fresh=start.fresh)
    beginning = training_run.next_sum()
    unfinished, opened = _resume(training_run, journal, binding.plan_digest, publish, masked=is_masked(plan))
    following = training_run.next_sum()
    has_progress = (beginning and beginning.place) != (following and following.place)
    records = _records(plan, paths, binding, journal)
    return Run(
        plan,
        binding.plan_digest,
        binding.layout,
        binding.schema,
        training_run,
        records,
        journal.last_sum_number,
        _continued(start, plan, journal, training_run, records) if has_progress else None,
        unfinished,
        opened,
        identity,
        Admission(FederationName(plan.federation.name), binding.plan_digest, roster, start.cert_folder),
        start.passphrase,
    )


def _checked_plan(start: Start) -> Plan:
    """Return the plan, which this machine and these options can carry out."""
    plan = load_plan(start.plan)
    check_deployment(plan)
    if start.repeats_rounds and sites_remember(plan):
        raise StateError(
            f"--after-restore continue is not for this plan: {CANNOT_REPEAT}",
            "put the newest copy of save/ back and start without it; the sites wait. Or begin a run with --fresh",
        )
    sites = len(plan.federation.collaborators)
    of_sites = FILES_OF_A_SITE * sites
    allow_open_files(of_sites + OTHER_FILES, of_sites + MIN_OPEN_FILES, f"the aggregator of {sites} collaborators")
    return plan


def _records(plan: Plan, paths: RunPaths, binding: InitialModel, journal: Journal) -> RunRecords:
    """Return what writes the files of the run."""
    origin = ModelOrigin.of_plan(plan, format_digest(binding.plan_digest), binding.schema, binding.initial_weights)
    return RunRecords(
        paths,
        binding.layout,
        journal,
        origin,
        plan.objective.worst_group_size,
        every_sum=is_unevaluated(plan) or sites_remember(plan),
    )


def _continued(
    start: Start, plan: Plan, journal: Journal, training_run: TrainingRun, records: RunRecords
) -> Continued:
    """Return how far the run has come, and how many sites have to say so before they are believed."""
    vouchers = max(2, (plan.secure_aggregation.colluders or 0) + 1)
    return Continued(
        journal.run_id,
        training_run.rounds_done,
        records.rounds_at_risk(training_run.rounds_done),
        vouchers,
        start.repeats_rounds,
        CANNOT_REPEAT if sites_remember(plan) else "",
    )


def _training_run(plan: Plan, binding: InitialModel, model: Path | None, room: VectorRoom) -> TrainingRun:
    if model is None:
        return TrainingRun(
            plan, binding.layout, binding.schema, binding.vector, room=room, carried=binding.carried
        )
    saved = load_saved(model, plan, binding.layout, binding.schema)
    exact = evaluates_exactly(plan)
    return evaluation_run(plan, binding.layout, binding.schema, saved, exact=exact)


def initial_binding(plan_file: Path) -> InitialModel:
    """Return the model before round 1 of a plan, from the file beside it.

    Raises:
        FedfairError: there is none, or it was made of another plan.
    """
    return read_initial_model(plan_file, load_plan(plan_file))


def _open_journal(paths: RunPaths, plan_digest: bytes, *, fresh: bool) -> Journal:
    paths.save.mkdir(parents=True, exist_ok=True)
    paths.metrics.parent.mkdir(parents=True, exist_ok=True)
    if fresh:
        forget(paths.journal)
    elif not paths.journal.exists() or not paths.journal.stat().st_size:
        _check_nothing_lost(paths)
    return Journal.open(paths.journal, plan_digest, uuid.uuid4().hex, time.time())


def _check_nothing_lost(paths: RunPaths) -> None:
    """Refuse to begin a run over the files of another one, whose journal is gone."""
    found = paths.left_behind()
    if found:
        raise StateError(
            f"{paths.journal} is missing, but {', '.join(map(str, found))} of an earlier run "
            f"{'is' if len(found) == 1 else 'are'} here",
            "copy save/ back from a backup to continue that run, or start with --fresh to discard it",
        )


def _resume(
    training_run: TrainingRun,
    journal: Journal,
    plan_digest: bytes,
    publish: Callable[[News], None],
    *,
    masked: bool,
) -> tuple[UnfinishedSum | None, LastOpened | None]:
    """Continue where the journal stands.

    Returns:
        The next sum, if an earlier start had begun it; and the sum before it, as sites receive it.
    """
    entry, unfinished = journal.latest(), journal.unfinished()
    if entry is not None:
        training_run.restore(entry.training_run)
    if unfinished is not None and not (masked and is_due(unfinished, plan_digest, training_run)):
        unfinished = None
    if entry is None:
        return unfinished, None
    if masked and unfinished is None and training_run.next_sum() is not None:
        # The sum after the recorded one may have been opened; no site sends the same update again.
        training_run.retry()
        snapshot, history = training_run.brief_snapshot(), training_run.history
        journal.record(JournalEntry(snapshot, entry.seconds, opened=entry.opened, history=history))
    publish(RunContinued(journal.run_id, training_run.rounds_done))
    return unfinished, entry.opened
