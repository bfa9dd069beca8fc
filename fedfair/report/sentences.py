"""A result in sentences that a policy maker reads: what changed for whom, at what cost, and what it does not show.

Decides the words and the rounding; where they stand is `run_page.py`'s business. Nothing here is HTML.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.description import percent
from fedfair.report.labels import result_labels
from fedfair.report.tables import NAMES, SPLIT_WORDS
from fedfair.results.document import ResultDocument
from fedfair.results.loss_text import loss_text
from fedfair.results.risks import PastRisk

NOT_RECORDED = "not recorded: the result was made by an older version"

_PARTS = {0.5: "half", 0.25: "quarter", 0.2: "fifth", 0.1: "tenth", 0.05: "twentieth", 0.01: "hundredth"}
_MAX_OTHERS = 3
_LEVELS = {
    "sample_level": "for each record",
    "collaborator_level": "for each collaborator",
}


@dataclass(frozen=True, slots=True)
class Reported:
    """One result, and what it is called beside the others.

    Attributes:
        label: unique among the results of a page.
        place: the file that it was read from.
        document: its content.
    """

    label: str
    place: str
    document: ResultDocument


def labelled(documents: Mapping[str, ResultDocument], labels: Sequence[str] = ()) -> tuple[Reported, ...]:
    """Return results under names that tell them apart; a single one is named by its algorithm.

    Args:
        documents: at least one result, by the file that it was read from.
        labels: the names that somebody wants, in the same order; none for those of the files.

    Raises:
        DataError: the names are not as many as the files, one is empty, or two are alike.
    """
    names = result_labels([*documents], labels)
    if len(documents) == 1 and not labels:
        names = tuple(map(algorithm_name, documents.values()))
    return tuple(Reported(name, *item) for name, item in zip(names, documents.items(), strict=True))


def algorithm_name(document: ResultDocument) -> str:
    """Return how an algorithm is written."""
    return NAMES.get(document.algorithm, document.algorithm)


def trained_by(document: ResultDocument) -> str:
    """Return the algorithm and the terms that it was trained for, as far as the result says them."""
    plan, name = document.plan, algorithm_name(document)
    if plan is None:
        return name
    return f"{name}, worst {percent(plan.worst_group_size)}, tradeoff {percent(plan.tradeoff)}"


def loss(value: float | None, beside: float | None = None) -> str:
    """Return a loss, in thousandths unless it, or the loss beside it, is tiny or huge; a dash for none."""
    return "-" if value is None else loss_text(value, beside=beside)


def part(size: float) -> str:
    """Return a share as a part of the people: tenth, or 30 %."""
    return _PARTS.get(size, percent(size))


def before_training(document: ResultDocument) -> PastRisk | None:
    """Return the risks at round 0 of the split that is shown; None where they were not recorded."""
    first = document.history[0] if document.history else None
    return document.past(first) if first is not None and first.round == 0 else None


def headline(shown: Reported, others: Sequence[Reported]) -> str:
    """Return what happened to the worst-off, in one sentence."""
    size = shown.document.worst_group_size
    now = _worst(shown, size)
    past = before_training(shown.document)
    before = None if past is None else shown.document.past_worst(past, size)
    change = "is not told, because they are too few people" if now is None else f"is {loss(now)}"
    if now is not None and before is not None:
        change = f"{'fell' if now < before else 'rose'} from {loss(before)} before training to {loss(now)}"
    if now == before and now is not None:
        change = f"stayed at {loss(now)}"
    compared = [f"{other.label}: {loss(_worst(other, size))}" for other in others[:_MAX_OTHERS]]
    beside = f" ({'; '.join(compared)})" if compared else ""
    return f"In the worst-off {part(size)} of the people, whoever they are, the mean loss {change}{beside}."


def _worst(reported: Reported, size: float) -> float | None:
    group = reported.document.shown[1].worst(size)
    return None if group is None else group.worst


def second_line(shown: Reported, others: Sequence[Reported]) -> str:
    """Return how everybody together fares, who they are, and what trained the model."""
    split, risk = shown.document.shown
    compared = [f"{other.label}: {loss(other.document.shown[1].mean)}" for other in others[:_MAX_OTHERS]]
    beside = f" ({'; '.join(compared)})" if compared else ""
    algorithm, rounds = algorithm_name(shown.document), shown.document.rounds
    right = "" if risk.accuracy is None else f", and {risk.accuracy:.1%} of the predictions are right"
    trained = f"The model was trained by {algorithm} in {rounds} rounds."
    if shown.document.model is not None:
        trained = (
            f"The run trained by {algorithm} for {rounds} rounds, and its result is {shown.document.model.words}."
        )
    return f"Over all of the {risk.n} {SPLIT_WORDS[split]} it is {loss(risk.mean)}{beside}{right}. {trained}"


def about_the_loss(document: ResultDocument) -> str:
    """Return what the loss of a result is, and what guessing costs where that has a meaning."""
    plan, floor = document.plan, document.uniform_floor
    if floor is not None and (plan is None or plan.loss is None):
        return nats(floor)
    words = "loss" if plan is None or plan.loss is None else plan.loss
    guess = "" if floor is None else f" Guessing costs everybody {loss_text(floor)}."
    return f"A loss says how wrong a prediction is: here it is the {words}, and 0 is best.{guess}"


def nats(floor: float) -> str:
    """Return what a loss is."""
    return (
        "A loss says how wrong a prediction is, in nats. If the model gave a probability p to the outcome that "
        "came true, the loss is ln(1/p): 0 for certainty, 0.105 for 90 %, 0.693 for 50 %, 2.303 for 10 %, and "
        "without limit towards 0 %. Guessing, which gives every outcome the same probability, costs everybody "
        f"{loss_text(floor)}."
    )


def setting_sentence(document: ResultDocument) -> str:
    """Return where the figures come from."""
    match document.setting:
        case "simulation":
            return "This was a simulation: one machine held everybody's records, and every figure is exact."
        case "deployment":
            noised = bool(document.privacy.promises())
            how = (
                "sums that carry noise: they are estimates. No interval around them is proven; those that are "
                "shown hold with 95 % under the noise."
                if noised
                else "sums; each comes with an interval that is proven to hold the truth."
            )
            return (
                "This was a run of separate processes: nobody but its owner saw a record or a loss. Figures are "
                f"computed from {how}"
            )
        case None:
            return "Whether this was a simulation or a deployed run is not recorded."


def departures(document: ResultDocument) -> Iterator[str]:
    """Yield who left the run, when, and what it said."""
    for gone in document.left:
        yield f"{gone.collaborator} left after round {gone.round}: {gone.reason}"


def late_sites(document: ResultDocument) -> Iterator[str]:
    """Yield whom sums went on without, and how long it took."""
    for late in document.late:
        times = "once" if late.times == 1 else f"{late.times} times"
        yield f"Sums went on without {late.collaborator} {times}; it took up to {late.longest_seconds:.1f} s."


def protection_sentences(document: ResultDocument) -> Iterator[str]:
    """Yield what hid each site's contribution, from whom."""
    protection = document.secure_aggregation
    if protection is None:
        yield f"Secure aggregation: {NOT_RECORDED}."
        return
    promised = f"{protection.guarantee[:1].upper()}{protection.guarantee[1:]}."
    if protection.masked:
        yield f"Sums were masked (mode {protection.mode}): what a site sent looked like noise to the aggregator."
        yield promised
        return
    if document.setting == "simulation":
        yield "In this simulation nothing travelled, so nothing was masked."
        yield f"What its plan promises of a deployment: {protection.guarantee}."
        return
    yield f"WARNING: sums were not masked. {promised}"


def reveal_sentences(document: ResultDocument) -> Iterator[str]:
    """Yield what the algorithm makes known in a round, whatever masks its sums."""
    known = next((facts for name, facts in ALGORITHMS.items() if name == document.algorithm), None)
    if known is None:
        return
    when = "Before the first round" if known.centralised else "In each round"
    yield f"{when} {known.title} must reveal {known.reveals}."
    if not known.deployed:
        yield f"It runs in simulation only; of this, masked sums could carry {known.masked}."


def privacy_sentences(document: ResultDocument) -> Iterator[str]:
    """Yield what differential privacy is promised, or that there is none."""
    if not document.privacy.promises():
        yield (
            "No noise was added, so the result carries no differential privacy: the sums, and the model that was "
            "learnt from them, can say something about the people behind them."
        )
    yield from promised_privacy(document)


def promised_privacy(document: ResultDocument) -> Iterator[str]:
    """Yield the differential privacy that is promised, with its epsilon, a sentence for each level."""
    for level, value in document.privacy.promises().items():
        # A statement says it in words; what has none is shown as it is.
        words = value.get("statement", value) if isinstance(value, dict) else value
        yield f"Differential privacy {_LEVELS.get(level, level)}: {words}"


def time_sentences(document: ResultDocument) -> Iterator[str]:
    """Yield how long the run and its rounds took."""
    timing = document.timing
    if timing is None:
        yield f"Time: {NOT_RECORDED}."
        return
    rounds = timing.rounds
    yield f"The run took {duration(timing.seconds)}."
    if rounds is None:
        yield f"The seconds of each round: {NOT_RECORDED}."
        return
    yield (
        f"Of {rounds.count} training rounds, half took at most {duration(rounds.median)}, nine in ten at most "
        f"{duration(rounds.p90)}, the longest {duration(rounds.longest)}."
    )


def traffic_sentences(document: ResultDocument) -> Iterator[str]:
    """Yield how much travelled."""
    traffic = document.traffic
    if traffic is None:
        yield (
            f"Bytes: {NOT_RECORDED}."
            if document.timing is None or document.timing.rounds is None
            else ("Bytes: not known for this algorithm.")
        )
        return
    each = traffic.per_round
    yield (
        f"For each training round a collaborator received {byte_count(each.bytes_down)} and sent "
        f"{byte_count(each.bytes_up)}, with its share of evaluations and everything else; all together the "
        f"aggregator sent {byte_count(traffic.bytes_down)} and received {byte_count(traffic.bytes_up)}."
    )
    if traffic.basis == "measured":
        yield "These are the bytes that the aggregator counted, without what gRPC and TLS wrap around them."
    else:
        yield (
            "These bytes are computed from the plan: what a deployment moves when nobody drops out, without what "
            "sets masks up and takes them away, and without what gRPC and TLS add."
        )


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 1.0:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60.0:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def byte_count(count: float) -> str:
    """Return a number of bytes in decimal units."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000.0
    return f"{count:.3g} TB"


def limits(results: Sequence[Reported]) -> Iterator[str]:
    """Yield what the page does not show."""
    document = results[0].document
    beside = "" if document.shown[1].accuracy is None else ", not about accuracy"
    yield (
        f"It is about a loss{beside} and not about harm: a group can have a small loss and still be "
        "harmed by the mistakes that are left."
    )
    yield (
        "It names no group. The worst group of a size is whoever fares worst, so every group of that size "
        "fares at least as well; a smaller group can fare worse."
    )
    if document.test is None:
        yield "It is about the people that the model was trained on; how new people fare is not shown."
    else:
        yield (
            "It is about people that had no part in training, as long as nobody chose the model or its settings "
            "by looking at them. If they do not represent those whom the model will serve, it says nothing about "
            "these."
        )
    yield "It trusts the sites to have reported sums of their own losses as they are."
    if any(other.document.setting == "simulation" for other in results):
        yield "Seconds of a simulation are those of one machine that computes for everybody, without a network."
    counts = {(other.document.shown[0], other.document.shown[1].n) for other in results}
    if len(counts) > 1:
        yield "The results are not about the same people, so they cannot be compared."
