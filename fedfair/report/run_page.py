"""The page of a run: who is served how well, how training went, what was agreed and protected, what it cost.

Decides which sections there are and what stands in them; sentences are `sentences.py`'s, pictures `charts.py`'s.
With several results the page is about one of them, and shows the others beside it. Everything on the page follows
from the files of results; what an older file lacks is said to be not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from fedfair.aggregation.loss_metrics import WORST_EXCESS_BOUND
from fedfair.plan.description import percent
from fedfair.report import charts, release_section, sentences
from fedfair.report.baseline_section import baseline_parts
from fedfair.report.blocks import bullets, facts, paragraph
from fedfair.report.calibration_lines import calibration_lines
from fedfair.report.figure_names import (
    ACCURACY,
    BY_GROUP_SIZE,
    DISPARITY,
    OVERALL,
    TOO_FEW,
    UNIFORM_GUESS,
    interval,
)
from fedfair.report.html import PageSection, page, render
from fedfair.report.score_section import score_parts
from fedfair.report.sentences import Reported
from fedfair.report.set_section import TITLE as SETS_TITLE
from fedfair.report.set_section import set_parts
from fedfair.report.slice_section import TITLE, slice_parts
from fedfair.report.survey_section import survey_parts
from fedfair.report.tables import above_range_lines, metric_rows, share
from fedfair.results.document import ResultDocument
from fedfair.results.risks import ReportedGroupRisk
from fedfair.results.served_groups import served_groups, served_sentence

_PREFERRED = "fedsrcvar"
_TRADE_OFF = "The worst group against the overall mean"
_OTHER_TRADEOFFS = (
    "Another tradeoff between the two takes another run. Where a record's answer is a class, the command "
    "fedfair plan advise simulates a grid of them. fedfair report shows the results of several runs beside "
    "each other."
)


def run_page(
    documents: Mapping[str, ResultDocument],
    certificates: Sequence[PageSection] = (),
    labels: Sequence[str] = (),
    first: Sequence[PageSection] = (),
) -> str:
    """Return the page.

    Args:
        documents: at least one result, by the file that it was read from.
        certificates: sections of what is proven about the model, made by those who know the certificate.
        labels: one name for each result; none for the names of the files.
        first: sections that stand before all others but the summary, made by those who know more than results.

    Raises:
        DataError: the names are not as many as the files, one is empty, or two are alike.
    """
    reported, (place, _) = sentences.labelled(documents, labels), subject(documents)
    about = next(each for each in reported if each.place == place)
    results = (about, *(each for each in reported if each is not about))
    plan = about.document.plan
    title = "Who is served how well" if plan is None else f"{plan.federation}: who is served how well"
    summary, *others = _sections(results, certificates)
    return page(title, [summary, *first, *others])


def subject(documents: Mapping[str, ResultDocument]) -> tuple[str, ResultDocument]:
    """Return the result that a page is about, with its file: the first by FedSRCVaR, or else the first."""
    fair = (item for item in documents.items() if item[1].algorithm == _PREFERRED)
    return next(fair, None) or next(iter(documents.items()))


def _sections(results: Sequence[Reported], certificates: Sequence[PageSection]) -> Iterator[PageSection]:
    about, others = results[0], results[1:]
    document = about.document

    def part(name: str, **values: object) -> Markup:
        given = {"about": about, "others": others, "results": results, "document": document}
        return render("run_page.html.jinja", part=name, say=sentences, charts=charts, **given, **values)

    yield PageSection("summary", "", part("summary", lines=calibration_lines))
    yield PageSection("baselines", "What could be had without this model", baseline_parts(results))
    yield PageSection("groups", "Every size of group at once", part("groups", **_groups(document)))
    if document.slices is not None:
        yield PageSection("slices", TITLE, slice_parts(document.slices))
    if document.release is not None:
        yield PageSection("release", release_section.TITLE, release_section.release_parts(document.release))
    if others:
        yield PageSection("trade-off", _TRADE_OFF, part("trade-off", **_comparison(results)))
    elif (on_the_way := charts.models_on_the_way(about)) is not None:
        yield PageSection("trade-off", _TRADE_OFF, on_the_way + paragraph(_OTHER_TRADEOFFS))
    if any(each.document.shown[1].scores for each in results):
        yield PageSection("scores", "Who comes first, and how far scores can be believed", score_parts(results))
    if document.sets is not None:
        yield PageSection("sets", SETS_TITLE, set_parts(document, document.sets))
    # FedAvg has no threshold that moves.
    moving = [each for each in results if each.document.algorithm == _PREFERRED]
    yield PageSection("training", "How training went", part("training", moving=moving))
    if document.survey is not None:
        yield PageSection("survey", "What the records look like", survey_parts(document.survey))
    yield from certificates
    yield PageSection("plan", "What was agreed", part("plan"))
    yield PageSection("privacy", "What was protected", part("privacy"))
    yield PageSection("cost", "What it took", part("cost"))
    yield PageSection("limits", "What this does not show", bullets(sentences.limits(results)))
    yield PageSection("files", "Where the figures come from", _files(results))


def _groups(document: ResultDocument) -> dict[str, object]:
    """Return from which size on the model beats guessing, and the figures of all groups and of other metrics."""
    _, risk = document.shown
    floor, metrics = document.uniform_floor, risk.metrics or {}
    listed = {
        name: values
        for name, values in metrics.items()
        if isinstance(values, tuple) and name != WORST_EXCESS_BOUND
    }
    return {
        "served": None if floor is None else served_sentence(served_groups(risk, floor)),
        "by_group_size": BY_GROUP_SIZE,
        "groups": [
            (percent(float(size)), *_cells(group, risk.mean))
            for size, group in sorted(risk.by_group_size.items(), key=lambda item: float(item[0]))
        ],
        "numbers": [row for row in metric_rows(metrics) if len(row) == 2],
        "listed_names": ["number", *(name.replace("_", " ") for name in listed)],
        "listed": [
            (str(place), *map(sentences.loss, values))
            for place, values in enumerate(zip(*listed.values(), strict=True), start=1)
        ],
        "above": [*above_range_lines(risk)],
    }


def _cells(group: ReportedGroupRisk, mean: float) -> tuple[str, str, str, str]:
    if group.worst is None:
        return (TOO_FEW, "-", "-", "-")
    best, disparity = sentences.loss(group.best, mean), sentences.loss(group.disparity, mean)
    return (sentences.loss(group.worst, mean), interval(group.bound, group.likely), best, disparity)


def _comparison(results: Sequence[Reported]) -> dict[str, object]:
    """Return the headings and the rows of a table of all results."""
    size, floor = results[0].document.worst_group_size, results[0].document.uniform_floor
    rows = []
    for number, each in enumerate(results, start=1):
        _, risk = each.document.shown
        worst = risk.worst(size)
        rows.append(
            (
                f"{number}. {each.label}",
                sentences.trained_by(each.document),
                sentences.loss(risk.mean),
                sentences.loss(None if worst is None else worst.worst, risk.mean),
                sentences.loss(None if worst is None else worst.disparity, risk.mean),
                share(risk.accuracy),
            )
        )
    if floor is not None:
        guess = sentences.loss(floor)
        rows.append((UNIFORM_GUESS, "-", guess, guess, sentences.loss(0.0, floor), "-"))
    headings = ("model", "trained by", OVERALL, f"worst {percent(size)}", DISPARITY, ACCURACY)
    return {"headings": headings, "rows": rows}


def _files(results: Sequence[Reported]) -> Markup:
    listed = [(each.label, f"{each.place}, plan {each.document.plan_digest}") for each in results]
    versions = ", ".join(f"{name} {number}" for name, number in results[0].document.versions.items())
    return facts([*listed, ("made with", versions or sentences.NOT_RECORDED)])
