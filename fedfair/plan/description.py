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
    measures_excess,
    needs_every_site,
    predicts_classes,
    quorum,
    reference_of,
    returned_output,
    scales_by_ranges,
    set_group_size,
    sums_columns,
    target_is_unscaled,
    why_no_sets,
)
from fedfair.plan.digest import beginning_digest, format_digest
from fedfair.plan.excess_terms import may_say_more
from fedfair.plan.learning_rates import (
    PLAIN_AVERAGING,
    server_optimizer_of,
    server_rate,
    stated_threshold_rate,
    weight_decay_of,
)
from fedfair.plan.losses import CROSS_ENTROPY, loss_in_words, predicts_number
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.plan.task import LinearModel, MlpModel, ResnetModel
from fedfair.statistics.table import IN_A_RUN
from fedfair.templates import sentences

TRAP_WEIGHTS = (
    "weights that somebody has chosen can copy single records into the sum: allow only weights whose origin you "
    "know"
)
"""The reason why a digest of weights says too little (Fowl et al. 2022; Boenisch et al. 2023)."""


def summary(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return what a plan does, as pairs of a heading and a sentence."""
    task, weights = plan.task, plan.evaluation.site_weights
    number = predicts_number(task.loss)
    lines = sentences(
        "fedfair.plan",
        "description.txt.jinja",
        plan=plan,
        quorum="all" if needs_every_site(plan) else f"at least {quorum(plan)}",
        model=model_in_words(plan),
        data=_data(plan),
        number=number,
        carried_scaling=carries_scaling(plan) and ("initial weights" if plan.training.initial else "references"),
        summed_columns=sums_columns(plan),
        ranges=scales_by_ranges(plan),
        unscaled_target=target_is_unscaled(plan),
        loss="" if task.loss == CROSS_ENTROPY else loss_in_words(task.loss),
        beginning="" if plan.training.initial is None else format_digest(beginning_digest(plan.training.initial)),
        trap=TRAP_WEIGHTS,
        objective=_objective(plan),
        steps=_steps(plan),
        threshold_rate=stated_threshold_rate(plan),
        server_step=_server_step(plan),
        output=returned_output(plan),
        unevaluated=is_unevaluated(plan),
        counted="" if plan.statistics is None else ", ".join(plan.statistics.columns),
        schedule=schedule_of(plan),
        classes=predicts_classes(plan),
        sizes=", ".join(percent(size) for size in plan.evaluation.group_sizes),
        sets=_sets(plan),
        mixed=", ".join(f"{name} {percent(weight / sum(weights.values()))}" for name, weight in weights.items()),
        hybrid=is_masked(plan) and plan.secure_aggregation.key_agreement == "x25519-mlkem768",
        leaves="; ".join(_leaves(plan)),
    )
    return tuple((heading, words) for heading, _, words in (line.partition("\t") for line in lines))


def _sets(plan: Plan) -> str:
    """Return what prediction sets promise; empty where there are none."""
    stated = plan.evaluation.sets
    if stated is None or why_no_sets(plan, 0):
        return ""
    what = "sets of classes" if predicts_classes(plan) else "intervals"
    size = percent(set_group_size(plan, stated))
    return (
        f"{what} that miss at most {percent(stated.missed)} of any group of {size} or more, stored with the model"
    )


def _data(plan: Plan) -> str:
    """Return where the records come from."""
    data = plan.task.data
    if not isinstance(data, CsvSource):
        return data if isinstance(data, str) else next(iter(type(data).model_fields))
    names, file = data.csv.answer_columns, f"each site's CSV file{_form(data.csv)}{_rows(data.csv)}"
    if not names:
        return file
    return f"column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))} of {file}"


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
    said = words.format(
        worst=percent(objective.worst_group_size),
        rest=percent(1 - objective.tradeoff),
        mean=percent(objective.tradeoff),
    )
    return f"{said}; {_excess(plan)}" if measures_excess(plan) else said


def _excess(plan: Plan) -> str:
    """Return what the excess promises, and to whom."""
    stated = reference_of(plan)
    hidden, more = ", ".join(map(str, stated.hidden)), may_say_more(stated, plan.task.model)
    trained = f"up to {stated.rounds} sums before round 1"
    if stated.run is not None:
        trained = f"those of an earlier run, whose result names them {stated.run}: no sum trains any"
    words = (
        "the loss is the excess over what a reference attains for people with the same features (a perceptron "
        f"with hidden layers of {hidden}, {stated.folds} folds, {trained}): the worst group is one that features "
        "define, and its bound holds as far as the reference is right about it"
    )
    if more is False:
        words += ". THE REFERENCE CAN SAY NO MORE THAN THE MODEL, so its excess says little: name wider layers"
    return words


def _steps(plan: Plan) -> str:
    training = plan.training
    if training.local_epochs is not None:
        return f"{training.local_epochs} local epochs"
    return f"{training.local_steps} local steps" if training.local_steps > 1 else "1 local step"


def _server_step(plan: Plan) -> str:
    stated, decay = server_optimizer_of(plan), weight_decay_of(plan)
    words = f"weights shrink by up to {percent(decay)} a round, " if decay else ""
    if not ALGORITHMS[plan.training.algorithm].mean_of_changes or stated == PLAIN_AVERAGING:
        return words
    return f"{words}steps by {stated.name} at {server_rate(plan):g}, "


def _leaves(plan: Plan) -> Iterator[str]:
    made = schedule_of(plan).purposes
    return itertools.chain.from_iterable(purpose.statistic.leaves(plan) for purpose in IN_A_RUN if purpose in made)


def percent(share: float) -> str:
    """Return a share as people read it, such as 10 %."""
    return f"{100 * share:.4g} %"
