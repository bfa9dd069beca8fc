"""The page of a run: who is served how well, how training went, what was agreed and protected, what it cost.

Decides which sections there are and what stands in them; sentences are `sentences.py`'s, pictures `charts.py`'s.
With several results the page is about one of them, and shows the others beside it. Everything on the page follows
from the files of results; what an older file lacks is said to be not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from fedfair.plan.description import percent
from fedfair.report import charts, sentences
from fedfair.report.blocks import bullets, facts, paragraph, side_by_side, table
from fedfair.report.calibration_lines import calibration_lines
from fedfair.report.figure_names import (
    ACCURACY,
    BY_GROUP_SIZE,
    DISPARITY,
    EVERYBODY,
    TOO_FEW,
    UNIFORM_GUESS,
    interval,
)
from fedfair.report.html import PageSection, page
from fedfair.report.score_section import score_parts
from fedfair.report.sentences import Reported
from fedfair.report.survey_section import survey_parts
from fedfair.report.tables import above_range_lines, metric_rows, share
from fedfair.results.document import ResultDocument
from fedfair.results.risks import ReportedGroupRisk
from fedfair.results.served_groups import served_groups, served_sentence
from fedfair.results.verdict import RunVerdict

_PREFERRED = "fedsrcvar"
_OTHER_TRADEOFFS = (
    "Another tradeoff between the two takes another run. Where a record's answer is a class, the command "
    "fedfair plan advise simulates a grid of them. fedfair report shows the results of several runs beside "
    "each other."
)


def run_page(
    documents: Mapping[str, ResultDocument],
    certificates: Sequence[PageSection] = (),
    labels: Sequence[str] = (),
) -> str:
    """Return the page.

    Args:
        documents: at least one result, by the file that it was read from.
        certificates: sections of what is proven about the model, made by those who know the certificate.
        labels: one name for each result; none for the names of the files.

    Raises:
        DataError: the names are not as many as the files, one is empty, or two are alike.
    """
    reported, (place, _) = sentences.labelled(documents, labels), subject(documents)
    about = next(each for each in reported if each.place == place)
    results = (about, *(each for each in reported if each is not about))
    plan = about.document.plan
    title = "Who is served how well" if plan is None else f"{plan.federation}: who is served how well"
    return page(title, [*_sections(results, certificates)])


def subject(documents: Mapping[str, ResultDocument]) -> tuple[str, ResultDocument]:
    """Return the result that a page is about, with its file: the first by FedSRCVaR, or else the first."""
    fair = (item for item in documents.items() if item[1].algorithm == _PREFERRED)
    return next(fair, None) or next(iter(documents.items()))


def _sections(results: Sequence[Reported], certificates: Sequence[PageSection]) -> Iterator[PageSection]:
    about = results[0]
    yield PageSection("summary", "", _summary(results))
    yield PageSection("groups", "Every size of group at once", _groups(results))
    if len(results) > 1:
        yield PageSection(
            "trade-off", "The worst group against everybody", charts.trade_off(results) + _comparison(results)
        )
    elif (on_the_way := charts.models_on_the_way(about)) is not None:
        traded = on_the_way + paragraph(_OTHER_TRADEOFFS)
        yield PageSection("trade-off", "The worst group against everybody", traded)
    if any(each.document.shown[1].scores for each in results):
        yield PageSection("scores", "Who comes first, and how far scores can be believed", score_parts(results))
    yield PageSection("training", "How training went", _training(results))
    if about.document.survey is not None:
        yield PageSection("survey", "What the records look like", survey_parts(about.document.survey))
    yield from certificates
    yield PageSection("plan", "What was agreed", _plan(about.document))
    yield PageSection("privacy", "What was protected", _privacy(about.document))
    yield PageSection("cost", "What it took", _cost(results))
    yield PageSection("limits", "What this does not show", bullets(sentences.limits(results)))
    yield PageSection("files", "Where the figures come from", _files(results))


def _summary(results: Sequence[Reported]) -> Markup:
    about, others = results[0], results[1:]
    document = about.document
    parts = [
        paragraph(sentences.headline(about, others), "lead"),
        paragraph(sentences.second_line(about, others)),
        paragraph(sentences.setting_sentence(document), "soft"),
        paragraph(sentences.about_the_loss(document), "card"),
    ]
    told = [*calibration_lines(document)]
    if told:
        parts.insert(2, bullets(told))
    if document.verdict is not None:
        parts.insert(2, _verdict(document.verdict))
    if document.state not in {None, "finished"}:
        state = "IS NOT OVER" if document.state == "running" else f"WAS {str(document.state).upper()}"
        parts.insert(0, paragraph(f"THE RUN {state}: {document.outcome}", "card"))
    return Markup("").join(parts)


def _verdict(verdict: RunVerdict) -> Markup:
    """Return the sentence that speaks for all, and under it why."""
    first, *rest = verdict.sentences
    if verdict.findings:
        opening = Markup('<p class="card" id="verdict"><b>{}</b></p>').format(first)
    else:
        opening = Markup('<p id="verdict">{}</p>').format(first)
    return opening + bullets(rest) if rest else opening


def _groups(results: Sequence[Reported]) -> Markup:
    """Return the picture, the size from which on the model beats guessing, and the figures."""
    document = results[0].document
    parts = [charts.group_sizes(results)]
    if document.uniform_floor is not None:
        served = served_groups(document.shown[1], document.uniform_floor)
        parts.append(paragraph(served_sentence(served)))
    return Markup("").join([*parts, _groups_table(results[0]), _metrics(document), _above_range(document)])


def _metrics(document: ResultDocument) -> Markup:
    """Return the metrics of a task without classes as tables: of all records, and of each label or interval."""
    metrics = document.shown[1].metrics
    if not metrics:
        return Markup("")
    numbers = [row for row in metric_rows(metrics) if len(row) == 2]
    parts = [table("What else the sums tell.", ("metric", "value"), numbers)] if numbers else []
    listed = {name: values for name, values in metrics.items() if isinstance(values, tuple)}
    if listed:
        names = [name.replace("_", " ") for name in listed]
        rows = [
            (str(place), *(sentences.loss(value) for value in values))
            for place, values in enumerate(zip(*listed.values(), strict=True), start=1)
        ]
        parts.append(table("One row for each, in the order of the plan.", ("number", *names), rows))
    return Markup("").join(parts)


def _above_range(document: ResultDocument) -> Markup:
    return Markup("").join(paragraph(f"{line.capitalize()}.") for line in above_range_lines(document.shown[1]))


def _about(document: ResultDocument) -> str:
    return f"Losses in {document.loss_unit}, smaller is better"


def _groups_table(about: Reported) -> Markup:
    _, risk = about.document.shown
    return table(
        f"{about.label}: mean loss by the size of the worst group. {_about(about.document)}.",
        BY_GROUP_SIZE,
        (
            (percent(float(size)), *_cells(group, risk.mean))
            for size, group in sorted(risk.by_group_size.items(), key=lambda item: float(item[0]))
        ),
    )


def _cells(group: ReportedGroupRisk, mean: float) -> tuple[str, str, str, str]:
    if group.worst is None:
        return (TOO_FEW, "-", "-", "-")
    best, disparity = sentences.loss(group.best, mean), sentences.loss(group.disparity, mean)
    return (sentences.loss(group.worst, mean), interval(group.bound, group.likely), best, disparity)


def _comparison(results: Sequence[Reported]) -> Markup:
    size = results[0].document.worst_group_size
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
    if results[0].document.uniform_floor is not None:
        floor = sentences.loss(results[0].document.uniform_floor)
        rows.append(
            (UNIFORM_GUESS, "-", floor, floor, sentences.loss(0.0, results[0].document.uniform_floor), "-")
        )
    headings = ("model", "trained by", EVERYBODY, f"worst {percent(size)}", DISPARITY, ACCURACY)
    return table(f"{_about(results[0].document)}.", headings, rows)


def _training(results: Sequence[Reported]) -> Markup:
    told = (*sentences.departures(results[0].document), *sentences.late_sites(results[0].document))
    gone = Markup("").join(map(paragraph, told))
    return gone + _course(results)


def _course(results: Sequence[Reported]) -> Markup:
    if not results[0].document.history:
        return paragraph(f"The evaluations on the way: {sentences.NOT_RECORDED}.")
    figures = [charts.risk_over_rounds(results)]
    # FedAvg has no threshold that moves.
    moving = [each for each in results if each.document.algorithm == _PREFERRED]
    if moving:
        figures.append(charts.threshold_over_rounds(moving))
    return side_by_side(figures)


def _plan(document: ResultDocument) -> Markup:
    if document.plan is None:
        return paragraph(f"The plan in words: {sentences.NOT_RECORDED}.")
    return facts(document.plan.summary)


def _privacy(document: ResultDocument) -> Markup:
    told = [
        *sentences.reveal_sentences(document),
        *sentences.protection_sentences(document),
        *sentences.privacy_sentences(document),
    ]
    return Markup("").join(paragraph(sentence) for sentence in told)


def _cost(results: Sequence[Reported]) -> Markup:
    document = results[0].document
    told = [*sentences.time_sentences(document), *sentences.traffic_sentences(document)]
    drawn = charts.seconds_over_rounds(results)
    return Markup("").join(paragraph(sentence) for sentence in told) + (drawn or Markup())


def _files(results: Sequence[Reported]) -> Markup:
    listed = [(each.label, f"{each.place}, plan {each.document.plan_digest}") for each in results]
    versions = ", ".join(f"{name} {number}" for name, number in results[0].document.versions.items())
    return facts([*listed, ("made with", versions or sentences.NOT_RECORDED)])
