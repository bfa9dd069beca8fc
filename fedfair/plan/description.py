"""A plan in words, for the people who have to agree to it.

Decides what a person must see before approving: who, what, for whom it is fair, how protected, which code runs and
what leaves a site. Whether the numbers are wise is another question, see `fedfair.report.plan_review`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.csv_table import CsvData
from fedfair.plan.derived import (
    carries_scaling,
    is_masked,
    is_unevaluated,
    needs_everybody,
    predicts_classes,
    quorum,
    returned_output,
    scales_by_ranges,
    sums_columns,
    target_is_unscaled,
)
from fedfair.plan.digest import beginning_digest, format_digest
from fedfair.plan.learning_rates import PLAIN_AVERAGING, server_optimizer_of, server_rate, stated_threshold_rate
from fedfair.plan.losses import CROSS_ENTROPY, loss_in_words, predicts_number
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import LinearModel, MlpModel, Plan, ResnetModel
from fedfair.plan.sources import CsvSource
from fedfair.statistics.table import IN_A_RUN

_PROTECTION = {
    "malicious": "sums are masked; holds against an aggregator that lies",
    "semi-honest": "sums are masked; holds against an aggregator that follows the protocol",
    "off": "NONE: the aggregator sees every site's own update in the clear",
}


TRAP_WEIGHTS = (
    "weights that somebody has chosen can copy single records into the sum: allow only weights whose origin you "
    "know"
)
"""The reason why a digest of weights says too little (Fowl et al. 2022; Boenisch et al. 2023)."""


NOT_EVALUATED = (
    ", and not before round 1 (other sites may have evaluated the given weights, and the two sums could be "
    "subtracted)"
)


def summary(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return what a plan does, as pairs of a heading and a sentence."""
    return (
        ("federation", _federation(plan)),
        ("learns", _task(plan)),
        *_beginning(plan),
        ("minimises", _objective(plan)),
        ("trains", _training(plan)),
        ("evaluates", _evaluation(plan)),
        ("protection", _protection(plan)),
        *_privacy(plan),
        ("code of its own", ", ".join(plan.task.references) or "none"),
        ("leaves a site", "; ".join(_leaves(plan))),
    )


def _federation(plan: Plan) -> str:
    federation = plan.federation
    names = federation.collaborators
    fewest = quorum(plan)
    need = "all" if needs_everybody(plan) else f"at least {fewest}"
    address = f"{federation.aggregator.host}:{federation.aggregator.port}"
    return (
        f"'{federation.name}' of {', '.join(names)}, connecting to {address}; "
        f"a sum needs {need} of {len(names)} and waits {federation.round_deadline_seconds} seconds"
    )


def _task(plan: Plan) -> str:
    task = plan.task
    if isinstance(task.data, CsvSource):
        names = task.data.csv.answer_columns
        listed = f"column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
        data = f"{listed} of each site's CSV file{_form(task.data.csv)}{_rows(task.data.csv)}"
    else:
        data = task.data if isinstance(task.data, str) else next(iter(type(task.data).model_fields))
    dealt = "" if task.partition is None else f", dealt by scheme {task.partition.scheme}"
    loss = "" if task.loss == CROSS_ENTROPY else f"; loss: {loss_in_words(task.loss)}"
    return f"{model_in_words(plan)} on {data}{dealt}{_scaled(plan)}{loss}"


def _rows(table: CsvData) -> str:
    """Return which rows of a file count, as far as not all of them do."""
    named = [f"{name} is {' or '.join(map(str, values))}" for name, values in table.rows.items()]
    return f", only rows whose {' and whose '.join(named)}" if named else ""


def _form(table: CsvData) -> str:
    """Return how the files are written, as far as that is not the usual form."""
    words = ["with blanks between fields"] if table.separator == " " else []
    words += [f"as {table.encoding}"] if table.encoding != "utf-8" else []
    words += [f"with {table.decimal!r} before decimals"] if table.decimal != "." else []
    words += [f"with {table.thousands!r} between thousands"] if table.thousands is not None else []
    dates = ", ".join(f"{name} ({form})" for name, form in table.dates.items())
    written = f" written {' and '.join(words)}" if words else ""
    return written + (f", dates as years: {dates}" if dates else "")


def _beginning(plan: Plan) -> Iterator[tuple[str, str]]:
    stated = plan.training.initial
    if stated is None:
        return
    threshold = "" if stated.threshold is None else f", threshold {stated.threshold:g}"
    words = f"weights of a file, {stated.weights}{threshold}"
    if stated.continues is not None:
        words = f"round {stated.continues.rounds + 1}: goes on from the state {stated.continues.state} of an "
        words += f"earlier run, of the plan {stated.continues.plans[-1]}"
    digest = format_digest(beginning_digest(stated))
    yield "begins with", f"{words}; for policy.initial_weights: {digest}; {TRAP_WEIGHTS}"


def _scaled(plan: Plan) -> str:
    number = predicts_number(plan.task.loss)
    columns = "columns and target" if number else "columns"
    if carries_scaling(plan):
        return f", {columns} scaled as the initial weights were trained"
    if sums_columns(plan):
        return f", {columns} standardised by one sum"
    ranged = ", columns scaled by their declared ranges" if scales_by_ranges(plan) else ""
    return f"{ranged}, target scaled by its range" if number and not target_is_unscaled(plan) else ranged


def model_in_words(plan: Plan) -> str:
    """Return what kind of model a plan trains, with its article."""
    match plan.task.model:
        case LinearModel():
            return "a linear model"
        case MlpModel(hidden=hidden):
            return f"a perceptron with hidden layers of {', '.join(map(str, hidden))}"
        case ResnetModel(norm=norm):
            return f"a ResNet-18 with {norm} norm"
        case reference:
            return f"the model of {reference}"


def _objective(plan: Plan) -> str:
    objective, words = plan.objective, ALGORITHMS[plan.training.algorithm].minimises
    if "{worst}" not in words:
        return f"{words} (the objective below counts for evaluation only)"
    return words.format(
        worst=percent(objective.worst_group_size),
        rest=percent(1 - objective.tradeoff),
        mean=percent(objective.tradeoff),
    )


def _training(plan: Plan) -> str:
    training = plan.training
    size = "all of a site's records" if training.batch_size == "full" else f"{training.batch_size} records"
    steps = f"{training.local_steps} local steps" if training.local_steps > 1 else "1 local step"
    if training.local_epochs is not None:
        steps = f"{training.local_epochs} local epochs"
    if training.control_variates:
        steps += " (corrected by control variates)"
    threshold = stated_threshold_rate(plan)
    return (
        f"{training.rounds} rounds of {training.algorithm}, {steps} each in batches of {size}, "
        f"learning rate {training.learning_rate:g} (threshold {threshold:g}){_course(plan)}, "
        f"{_server_step(plan)}{training.precision}; result: {returned_output(plan)} model"
    )


def _course(plan: Plan) -> str:
    stated = plan.training.schedule
    return "" if stated == "constant" else f" falling to nothing ({stated})"


def _server_step(plan: Plan) -> str:
    stated = server_optimizer_of(plan)
    if not ALGORITHMS[plan.training.algorithm].mean_of_changes or stated == PLAIN_AVERAGING:
        return ""
    return f"steps by {stated.name} at {server_rate(plan):g}, "


def _evaluation(plan: Plan) -> str:
    if is_unevaluated(plan):
        return "nothing: no evaluation sum carries the noise of privacy.collaborator_level"
    sizes = ", ".join(percent(size) for size in plan.evaluation.group_sizes)
    weights = plan.evaluation.site_weights
    mixed = ", ".join(f"{name} {percent(weight / sum(weights.values()))}" for name, weight in weights.items())
    population = f"; a certificate speaks of a population with the sites' shares {mixed}" if weights else ""
    scores = "; AUC, Brier score and calibration" if plan.evaluation.scores else ""
    if plan.evaluation.scores and plan.evaluation.calibration != "none":
        scores += ", and by the same sums two numbers for each class that make scores probabilities (Platt)"
    schedule = schedule_of(plan)
    first = "" if schedule.evaluates_first else NOT_EVALUATED
    beside = ", accuracy" if predicts_classes(plan) else ""
    figures = f"mean{beside} and the mean loss of the worst groups of {sizes}{scores}"
    return f"every {schedule.every} rounds{first}: {figures}{population}"


def _protection(plan: Plan) -> str:
    stated = plan.secure_aggregation
    hybrid = is_masked(plan) and stated.key_agreement == "x25519-mlkem768"
    return _PROTECTION[stated.mode] + ("; keys agreed by X25519 and ML-KEM-768 together" if hybrid else "")


def _privacy(plan: Plan) -> Iterator[tuple[str, str]]:
    asked = plan.privacy.sample_level
    if asked is not None:
        words = (
            "of every record (zero-out: replaced by one that contributes nothing): "
            f"noise multiplier {asked.noise_multiplier:g} in each local step, "
            f"{asked.evaluation_noise_multiplier:g} in each evaluation, gradients clipped at {asked.clip:g} "
            f"({asked.clipping.replace('_', ' ')}); how many records a site has is public"
        )
        yield "differential privacy", words
    noised = plan.privacy.collaborator_level
    if noised is not None:
        words = (
            f"of every collaborator: noise multiplier {noised.noise_multiplier:g} in each training sum, in shares "
            f"of all sites; changes clipped at norm {noised.clip:g}; no other sum is made"
        )
        yield "differential privacy", words


def _leaves(plan: Plan) -> Iterator[str]:
    made = schedule_of(plan).purposes
    return itertools.chain.from_iterable(purpose.statistic.leaves(plan) for purpose in IN_A_RUN if purpose in made)


def percent(share: float) -> str:
    """Return a share as people read it, such as 10 %."""
    return f"{100 * share:.4g} %"
