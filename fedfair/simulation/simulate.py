"""A whole federation in one process: the same training run, the same draws, the same sums, no network.

With the loop every contribution is encoded and added as it would be after travelling. Where the plan does not
mask, the sums are those of the deployed run bit for bit. Where it does, changes are clipped as in a masked sum, by
the same rule, and only the rounding to steps of the ring is left out. The vectorised cohort adds the same numbers
up in another order. What a deployment
can never know is known here: exact risks, at every evaluation, and per-site means; the result has them. Decisions
(the best model, the first threshold) are taken on the sums, as in a deployment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.evaluation_file import EvaluationRecord, evaluation_record
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.survey import survey_layout
from fedfair.errors import LocalProtocolError, PlanError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.deployment import check_trains
from fedfair.plan.derived import (
    given_references,
    is_noised,
    is_unevaluated,
    measures_excess,
    rounds_before,
    sites_remember,
)
from fedfair.plan.digest import format_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.plan.simulated_clip import clips_in_simulation
from fedfair.results.costs import ComputedTraffic, SumCost
from fedfair.results.document import ResultDocument
from fedfair.results.privacy import simulated_privacy
from fedfair.results.writing import exact_evaluation, simulated_result
from fedfair.run.initial_model import StatedWeights
from fedfair.run.reference_file import KeptReferences, references_beside, stated_references
from fedfair.run.saved_model import ModelOrigin, TrainedModel, evaluation_run, saved_of, without_noise
from fedfair.run.training_run import Evaluation, GlobalModel, Progress, TrainingRun
from fedfair.simulation.all_clients import SimulatedClients, simulated_clients
from fedfair.simulation.backend import Engine, RayCluster, chosen_engine
from fedfair.simulation.baselines.cohort_queries import Algorithm
from fedfair.simulation.baselines.registry import algorithm_of
from fedfair.simulation.centralised.pooled import POOLED, PooledClients, pool
from fedfair.simulation.clients import Clients
from fedfair.simulation.linear_family import family_facts, is_too_much
from fedfair.simulation.sharded.clients import OnLoss, ignore_loss
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Splits
from fedfair.tables.source import SiteFiles, files_of_sites, load_federation
from fedfair.tables.survey_faults import SurveyFault, survey_faults
from fedfair.training.binding import PlanBinding, bound
from fedfair.training.device import threads_for
from fedfair.training.reference_records import check_records, of_records

HERE = RayCluster()

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """The outcome of a simulation.

    Attributes:
        result: the figures of the run; its JSON is the contract `fedfair/result/1`.
        model: the output model.
        layout: where its tensors lie.
        evaluation: the sums behind the evaluation of the output model.
        scaling: of the features that the model expects; None where it takes them as they are.
        losses: those of the output model, record by record in the order of every collaborator's splits.
        origin: what a file of the model says of the plan.
        saved: the output model as a file has it.
        trained: what training ended with, whichever model is the output; None where a saved model was evaluated.
        survey_faults: what the plan's survey shows of each collaborator's columns, where it shows anything.
        references: returns those that judged the records, for a file; None where none have.
    """

    result: ResultDocument
    model: GlobalModel
    layout: Layout
    evaluation: EvaluationRecord
    scaling: FeatureScaling | None
    losses: Mapping[ParticipantId, SiteLosses]
    origin: ModelOrigin
    saved: TrainedModel
    trained: TrainedModel | None = None
    survey_faults: Mapping[ParticipantId, tuple[SurveyFault, ...]] = field(default_factory=dict)
    references: Callable[[], KeptReferences] | None = None


def simulate(
    plan: Plan,
    root: Path,
    *,
    engine: Engine = "auto",
    cluster: RayCluster = HERE,
    on_progress: OnProgress | None = None,
    on_loss: OnLoss = ignore_loss,
) -> SimulationOutcome:
    """Run the plan on this machine, or on those of a Ray cluster.

    Args:
        plan: the plan. Nothing is masked, because masks cancel; clipping is applied as under masks
            (`plan.simulated_clip`).
        root: the workspace: the plan's data paths and code start there.
        engine: compute one collaborator after the other (`loop`), or all at once (`vectorised`), which is the
            same up to rounding; `auto` is vectorised where the model and the precision allow it. With `ray` each
            of many workers computes its share so, and the sums of shares are added.
        cluster: the workers of `ray`.
        on_progress: called after every sum; an evaluation has the exact figures that the result has.
        on_loss: called with the number of a worker of `ray` that was lost and replaced, and the reason.

    Raises:
        FedfairError: the plan's data cannot be loaded, it cannot be vectorised as asked, training left the
            finite numbers, or there is no such cluster.
    """
    _check_continues(plan)
    chosen_engine(plan, engine)
    apart = engine == "ray" and files_of_sites(plan) is not None
    sites = SiteFiles(plan, root.resolve()) if apart else load_federation(plan, root)
    return simulate_sites(
        plan, sites, root, engine=engine, cluster=cluster, on_progress=on_progress, on_loss=on_loss
    )


def simulate_sites(
    plan: Plan,
    sites: Mapping[ParticipantId, Splits],
    root: Path,
    *,
    engine: Engine = "auto",
    cluster: RayCluster = HERE,
    on_progress: OnProgress | None = None,
    on_loss: OnLoss = ignore_loss,
    initial: StatedWeights | None = None,
    references: Path | None = None,
    asks_family: bool = True,
) -> SimulationOutcome:
    """Run the plan on records that are in memory already; otherwise as `simulate`.

    `initial` are the weights that the plan names, where no file beside the plan holds them, and `references` the
    file of an earlier run's. Unless `asks_family`,
    the verdict says nothing of what other models of the kind could do, which may take longer than the run.
    """
    chosen = chosen_engine(plan, engine)
    _check_continues(plan)
    where = cluster if engine == "ray" else None
    with (
        simulated_clients(plan, sites, root, chosen, where, on_loss) as clients,
        threads_for(clients.layout.dimension),
    ):
        return _simulated(clients, _begun(clients, initial, references), on_progress, asks_family=asks_family)


def _simulated(
    clients: SimulatedClients, binding: PlanBinding, on_progress: OnProgress | None, *, asks_family: bool
) -> SimulationOutcome:
    plan, sites, schema = clients.plan, clients.sites, clients.schema
    training_run = TrainingRun(plan, binding.layout, schema, binding.vector, carried=binding.carried)
    cohort = clients.cohort(plan, sites)
    centralised = ALGORITHMS[plan.training.algorithm].centralised
    if centralised:
        everything = {POOLED: Splits(pool(splits.train for splits in sites.values()))}
        cohort = PooledClients(cohort, clients.cohort(plan, everything))
    algorithm = algorithm_of(plan, sites)
    summed = algorithm is None and not centralised
    sums = _SumWatch(ComputedTraffic(plan, binding.layout, schema), cohort, on_progress, summed=summed)
    start = sums.began
    play(training_run, cohort, algorithm, sums.note, clips=clips_in_simulation(plan))
    evaluated, held = training_run, cohort.last_losses
    if is_unevaluated(plan):
        evaluated, held = _evaluated(clients, training_run)
        sums.exact[evaluated.history[-1].round] = exact_evaluation(evaluated.history[-1], held)
    elif training_run.state.final is not None:
        held = cohort.losses(training_run.model)
    outcome = evaluated.result()
    # Of an earlier run that continues here, no losses are known: what its sums proved stands.
    history = tuple(sums.exact.get(past.round, past) for past in evaluated.history)
    losses = dict(zip(cohort.names, held, strict=True))
    result = simulated_result(
        plan,
        format_digest(binding.digest),
        replace(
            outcome,
            history=history,
            rounds=training_run.rounds_done,
            threshold=training_run.model.threshold,
            which=training_run.which,
        ),
        losses,
        classes=schema.classes,
        seconds=time.perf_counter() - start,
        costs=sums.costs,
        privacy=simulated_privacy(plan, clients.logs, distributed_dp(plan, binding.layout.dimension)),
        family=None
        if not asks_family or measures_excess(plan) or _unread(sites, losses, schema)
        else partial(family_facts, plan, sites),
        engine=clients.engine_name,
    )
    if evaluated.evaluated is None:
        raise LocalProtocolError("a training run that was played to its end has no evaluation")
    # One process holds all records here, so there was nothing to mask.
    record = evaluation_record(plan, binding.digest, schema, evaluated.evaluated, masked=False)
    origin = ModelOrigin.of_plan(plan, record.plan_digest, schema, binding.initial_weights)
    faults = _survey_faults(clients, training_run)
    files = (
        saved_of(training_run, "present", origin.plan_digest),
        saved_of(training_run, "trained", origin.plan_digest),
    )
    kept = training_run.rules.references(training_run.state)
    noted = None if kept is None else partial(of_records, kept, sites)
    about = result, training_run.model, binding.layout, record, training_run.scaling
    return SimulationOutcome(*about, losses, origin, *files, faults, noted)


def _begun(clients: SimulatedClients, initial: StatedWeights | None, references: Path | None) -> PlanBinding:
    """Return what the plan is bound to, after looking whether references may judge these records."""
    plan, place = clients.plan, references or references_beside(clients.plan)
    if given_references(plan) is not None:
        check_records(stated_references(plan, clients.schema, place), clients.sites)
    return bound(plan, clients.schema, clients.root, initial, references=place)


class _SumWatch:
    """Keeps what every sum of a simulation cost, and the exact figures of each evaluation.

    Args:
        traffic: computes the bytes of a sum.
        clients: hold the losses of the last evaluation.
        on_progress: called after every sum, with exact figures.
        summed: whether a round is a single sum; else what it moves is not known here.
    """

    def __init__(
        self, traffic: ComputedTraffic, clients: Clients, on_progress: OnProgress | None, *, summed: bool
    ) -> None:
        self._traffic, self._clients, self._on_progress, self._summed = traffic, clients, on_progress, summed
        self.costs: list[SumCost] = []
        self.exact: dict[int, Evaluation] = {}
        self.began = time.perf_counter()

    def note(self, progress: Progress) -> None:
        """Take a sum that is over; the next one begins when it was reported."""
        cost = self._traffic.cost(progress, time.perf_counter() - self.began)
        self.costs.append(cost if self._summed else replace(cost, bytes_up=0, bytes_down=0))
        if progress.evaluation is not None:
            # An output model that is a mean is evaluated last, with the round of the last model before it.
            known = exact_evaluation(progress.evaluation, self._clients.last_losses)
            self.exact.setdefault(known.round, known)
            progress = replace(progress, evaluation=known)
        if self._on_progress is not None:
            self._on_progress(progress)
        self.began = time.perf_counter()


def _survey_faults(
    clients: SimulatedClients, training_run: TrainingRun
) -> dict[ParticipantId, tuple[SurveyFault, ...]]:
    """Return the faults of each collaborator's own columns; none where no process holds all records."""
    survey, sites = training_run.state.kept.get(Purpose.SURVEY.value), clients.sites
    if survey is None or isinstance(sites, SiteFiles):
        return {}
    layout = survey_layout(clients.plan, clients.schema)
    found = {
        name: survey_faults(survey.header, site.survey, layout)
        for name, site in sites.items()
        if site.survey is not None
    }
    return {name: faults for name, faults in found.items() if faults}


def _unread(
    sites: Mapping[ParticipantId, Splits], losses: Mapping[ParticipantId, SiteLosses], schema: FeatureSchema
) -> bool:
    """Return whether the records are too many for what reads all of them in one place; then they stay unread."""
    held = [
        sum(len(site[split].values) for site in losses.values() if split in site) for split in ("test", "train")
    ]
    return isinstance(sites, SiteFiles) and is_too_much(schema, held[0] or held[1])


def _check_continues(plan: Plan) -> None:
    """Refuse statistics, and to continue a run where more than its state counts: what sites keep or released."""
    check_trains(plan)
    if rounds_before(plan) and (sites_remember(plan) or is_noised(plan)):
        kept = "the noise that was released" if is_noised(plan) else "what every site keeps of earlier rounds"
        raise PlanError(
            f"this plan continues an earlier run, and a simulation does not have {kept}",
            "simulate the whole run: remove plan.initial.yaml and its like from a copy of the plan",
        )


def _evaluated(clients: SimulatedClients, training_run: TrainingRun) -> tuple[TrainingRun, list[SiteLosses]]:
    """Return the evaluation of the output model, where the plan itself has none, and its losses."""
    plan = without_noise(clients.plan)
    saved = TrainedModel(training_run.model, training_run.rounds_done, "", training_run.scaling)
    evaluating = evaluation_run(plan, clients.layout, clients.schema, saved, exact=False)
    cohort = clients.cohort(plan, clients.sites)
    play(evaluating, cohort)
    return evaluating, cohort.last_losses


def play(
    training_run: TrainingRun,
    cohort: Clients,
    algorithm: Algorithm | None = None,
    on_progress: OnProgress | None = None,
    *,
    clips: bool = False,
) -> None:
    """Drive a training run to its end with all clients in every sum.

    Args:
        training_run: the training run.
        cohort: all clients.
        algorithm: what makes the training rounds where a weighted sum is not enough; None for sums.
        on_progress: called after every sum; an evaluation has the exact figures that the result has.
        clips: whether changes are clipped, as in a deployment.
    """
    if training_run.scaling is not None:
        cohort.apply_scaling(training_run.scaling)
    while (request := training_run.next_sum()) is not None:
        references = training_run.state.judging
        if references is not None:
            cohort.apply_references(references)
        if algorithm is not None and request.purpose.statistic.is_round:
            progress = training_run.apply_model(
                algorithm.round(cohort, training_run.model, request.round), len(cohort.names)
            )
        else:
            totals = cohort.totals(request, training_run.model, training_run.state.clip if clips else None)
            progress = training_run.apply_aggregate(totals, cohort.names)
        if training_run.scaling is not None and not request.purpose.statistic.is_about_model:
            cohort.apply_scaling(training_run.scaling)
        if on_progress is not None:
            on_progress(progress)
