"""A result in sentences that a policy maker reads: what changed for whom, at what cost, and what it does not show.

Decides the words and the rounding; where they stand is `run_page.py`'s business. Nothing here is HTML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedfair.aggregation.loss_metrics import WORST_EXCESS
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.description import percent
from fedfair.report.labels import result_labels
from fedfair.report.tables import NAMES, SPLIT_WORDS
from fedfair.results.document import ResultDocument
from fedfair.results.loss_text import loss_text
from fedfair.results.parts import ReportedTenth
from fedfair.results.risks import PastRisk
from fedfair.results.slices import checked_sentence
from fedfair.templates import sentences

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


def _said(part: str, document: ResultDocument, **values: object) -> tuple[str, ...]:
    """Return the sentences of one part about a result."""
    return sentences(
        "fedfair.report",
        "sentences.txt.jinja",
        part=part,
        document=document,
        loss=loss,
        duration=duration,
        bytes=byte_count,
        not_recorded=NOT_RECORDED,
        **values,
    )


def _beside(others: Sequence[Reported], risk_of: Callable[[Reported], float | None]) -> str:
    """Return a loss of other results, in brackets."""
    compared = [f"{other.label}: {loss(risk_of(other))}" for other in others[:_MAX_OTHERS]]
    return f" ({'; '.join(compared)})" if compared else ""


def headline(shown: Reported, others: Sequence[Reported]) -> str:
    """Return what happened to the worst-off, in one sentence; by their excess, where training followed it."""
    size = shown.document.worst_group_size
    past = before_training(shown.document)
    excess = _worst_excess(shown.document.shown[1].metrics)
    if excess is not None:
        before = None if past is None else _worst_excess(past.metrics)
        return _said("excess", shown.document, people=part(size), now=excess, before=before)[0]
    return _said(
        "headline",
        shown.document,
        people=part(size),
        now=_worst(shown, size),
        before=None if past is None else shown.document.past_worst(past, size),
        beside=_beside(others, lambda other: _worst(other, size)),
    )[0]


def _worst_excess(metrics: Mapping[str, object] | None) -> float | None:
    """Return the worst group's excess over references among the metrics of a split; None without one."""
    found = (metrics or {}).get(WORST_EXCESS)
    return found if isinstance(found, float) else None


def _worst(reported: Reported, size: float) -> float | None:
    group = reported.document.shown[1].worst(size)
    return None if group is None else group.worst


def second_line(shown: Reported, others: Sequence[Reported]) -> str:
    """Return the overall figures, whom they are of, and what trained the model."""
    split, risk = shown.document.shown
    return _said(
        "second",
        shown.document,
        risk=risk,
        whom=SPLIT_WORDS[split],
        algorithm=algorithm_name(shown.document),
        beside=_beside(others, lambda other: other.document.shown[1].mean),
    )[0]


SURE = 3.0
"""Standard errors from which on a tenth is off by more than chance; one of right references in 3 % of runs."""


def about_references(document: ResultDocument) -> tuple[str, ...]:
    """Return how right the references were about the people whom a result shows; nothing where unchecked."""
    split, _ = document.shown
    figures = document.references
    tenths = () if figures is None or figures.checked is None else figures.checked.get(split, ())
    by_slice = tuple(checked_sentence(document.slices))
    if not tenths:
        return by_slice
    off = max(tenths, key=_errors)
    people = sum(one.records for one in tenths)
    fits = _errors(off) <= SURE
    return (*_said("reference", document, off=off, people=people, whom=SPLIT_WORDS[split], fits=fits), *by_slice)


def _errors(tenth: ReportedTenth) -> float:
    """Return by how many standard errors what came true differs from what was said."""
    return abs(tenth.found - tenth.said) / tenth.error if tenth.error else math.inf


def about_the_loss(document: ResultDocument) -> str:
    """Return what the loss of a result is, and what guessing costs where that has a meaning."""
    return _said("loss", document)[0]


def setting_sentence(document: ResultDocument) -> str:
    """Return where the figures come from."""
    return _said("setting", document)[0]


def departures(document: ResultDocument) -> Iterator[str]:
    """Yield who left the run, when, and what it said."""
    for gone in document.left:
        yield f"{gone.collaborator} left after round {gone.round}: {gone.reason}"


def late_sites(document: ResultDocument) -> Iterator[str]:
    """Yield whom sums continued without, and how long it took."""
    for late in document.late:
        times = "once" if late.times == 1 else f"{late.times} times"
        yield f"Sums continued without {late.collaborator} {times}; it took up to {late.longest_seconds:.1f} s."


def protection_sentences(document: ResultDocument) -> tuple[str, ...]:
    """Return what hid each site's contribution, from whom."""
    return _said("protection", document)


def reveal_sentences(document: ResultDocument) -> tuple[str, ...]:
    """Return what the algorithm makes known in a round, whatever masks its sums."""
    known = next((facts for name, facts in ALGORITHMS.items() if name == document.algorithm), None)
    return _said("reveals", document, known=known)


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


def time_sentences(document: ResultDocument) -> tuple[str, ...]:
    """Return how long the run and its rounds took."""
    return _said("time", document)


def traffic_sentences(document: ResultDocument) -> tuple[str, ...]:
    """Return how much travelled."""
    return _said("traffic", document)


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


def limits(results: Sequence[Reported]) -> tuple[str, ...]:
    """Return what the page does not show."""
    simulated = any(other.document.setting == "simulation" for other in results)
    differ = len({(other.document.shown[0], other.document.shown[1].n) for other in results}) > 1
    return _said("limits", results[0].document, simulated=simulated, differ=differ)
