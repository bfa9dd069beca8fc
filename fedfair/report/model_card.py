"""A model card in Markdown: how the worst-off fare, what is certified, what the model takes and does not show.

Decides the order, in which the worst group comes first, and that model, result and certificate belong together.
Every sentence is made where reports and certificates make theirs. Source of the form: Mitchell et al. 2019, "Model
cards for model reporting".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fedfair.aggregation.requests import vector_sha256
from fedfair.certificate.check import check_figures, check_model
from fedfair.certificate.document import Certificate
from fedfair.certificate.excerpt import check_result
from fedfair.certificate.sentences import (
    limits,
    main_statement,
    mixture_sentences,
    population_sentence,
    sample_sentence,
)
from fedfair.errors import DataError
from fedfair.plan.description import percent
from fedfair.plan.digest import format_digest
from fedfair.report import sentences
from fedfair.report.calibration_lines import calibration_lines
from fedfair.report.figure_names import EVERYBODY, TOO_FEW, UNIFORM_GUESS, interval
from fedfair.report.model_facts import column_facts, model_facts
from fedfair.report.tables import SPLIT_WORDS, metric_rows
from fedfair.results.document import ResultDocument
from fedfair.results.loss_text import loss_text
from fedfair.results.risks import ReportedGroupRisk
from fedfair.results.warnings import which_model
from fedfair.run.saved_model import DescribedModel

SAME_THRESHOLD = 1e-9
"""A threshold is written with every digit; two models of one plan that differ have others."""


def model_card(
    model: DescribedModel, result: ResultDocument, certificate: Certificate | None = None, place: str = ""
) -> str:
    """Return the card of a model as Markdown.

    Args:
        model: the model's file.
        result: of the run whose output model it is.
        certificate: of its evaluation; None where there is none.
        place: the certificate's file.

    Raises:
        DataError: the result is about another model.
        CertificateError: the certificate is about another one, or claims what it does not prove.
    """
    _check(model, result, certificate, place)
    return "\n".join(_lines(model, result, certificate, place)) + "\n"


def _check(model: DescribedModel, result: ResultDocument, certificate: Certificate | None, place: str) -> None:
    saved = model.saved
    if model.origin.fine_tuned_at:
        raise DataError(
            f"this model was fine-tuned at {model.origin.fine_tuned_at}, and no result is about it",
            "give the model of the federation",
        )
    if result.plan_digest != saved.plan_digest:
        raise DataError(
            f"the result is of the plan {result.plan_digest}, the model of {saved.plan_digest or '(not said)'}",
            "give the result of the run that trained this model",
        )
    same = math.isclose(result.threshold, saved.model.threshold, rel_tol=SAME_THRESHOLD, abs_tol=SAME_THRESHOLD)
    if not same:
        raise DataError(
            f"the result is about a model with the threshold {result.threshold:.9g}, this one has "
            f"{saved.model.threshold:.9g}",
            "give the run's output model, such as save/last.safetensors of a finished run",
        )
    digest = format_digest(vector_sha256(saved.model.vector))
    if result.model is not None and result.model.digest != digest:
        raise DataError(
            f"the result is about {result.model.words}, {result.model.digest}; this model is {digest}",
            "give the run's output model, such as save/last.safetensors of a finished run",
        )
    if certificate is not None:
        check_figures(certificate)
        check_result(certificate, result, place)
        check_model(certificate, digest)


def _lines(
    model: DescribedModel, result: ResultDocument, certificate: Certificate | None, place: str
) -> Iterator[str]:
    reported = sentences.labelled({"result.json": result})
    yield f"# Model card: {_text(model.origin.federation or 'a federated model')}"
    yield from ("", "## How the worst-off fare", "")
    yield from _fairness(result)
    if certificate is not None:
        yield from ("", "## What is certified", "")
        yield from _certified(certificate, place)
    yield from ("", "## What the model is", "")
    yield from _table(("property", "value"), model_facts(model))
    yield from ("", "## What it takes", "")
    columns = list(column_facts(model))
    yield from _table(("column", "holds", "a missing value becomes"), columns) if columns else ("Images.",)
    if result.plan is not None:
        yield from ("", "## How it was trained", "")
        yield from _table(("the plan", "in words"), result.plan.summary)
    yield from ("", "## What protected the people behind it", "")
    yield from _bullets([*sentences.protection_sentences(result), *sentences.privacy_sentences(result)])
    yield from ("", "## What this card does not show", "")
    yield from _bullets(sentences.limits(reported))


def _fairness(result: ResultDocument) -> Iterator[str]:
    """Yield the verdict, then the losses: the worst group that training protects first, everybody last."""
    split, risk = result.shown
    size = result.worst_group_size
    told = (*which_model(result), *(() if result.verdict is None else result.verdict.sentences))
    if told:
        yield from _bullets(told)
        yield ""
    yield f"The figures are about {risk.n} {SPLIT_WORDS[split]}."
    yield ""
    first = [(key, group) for key, group in risk.by_group_size.items() if float(key) == size]
    others = [(key, group) for key, group in risk.by_group_size.items() if float(key) != size]
    rows = [_group(float(key), group) for key, group in first]
    rows += [_group(float(key), group) for key, group in sorted(others, key=lambda item: float(item[0]))]
    rows.append((EVERYBODY, loss_text(risk.mean, 4), ""))
    if result.uniform_floor is not None:
        rows.append((UNIFORM_GUESS, loss_text(result.uniform_floor, 4), ""))
    yield from _table(("who", f"mean loss ({result.loss_unit})", "proven interval"), rows)
    yield ""
    if risk.metrics:
        yield from _table(("metric", "value"), [(row[0], ", ".join(row[1:])) for row in metric_rows(risk.metrics)])
        yield ""
    if returned := [*calibration_lines(result)]:
        yield from _bullets(returned)
        yield ""
    accuracy = "" if risk.accuracy is None else f"Accuracy: {risk.accuracy:.1%}. "
    yield f"{accuracy}{sentences.about_the_loss(result)}"
    yield ""
    yield _whose(result)


def _whose(result: ResultDocument) -> str:
    """Return whose records the figures are of: an evaluation may have been of one site alone."""
    told, plan = result.collaborators, result.plan
    if result.setting == "simulation" and told and plan is not None and len(told) < plan.collaborators:
        return f"The figures are exact, and of {', '.join(told)} alone: {len(told)} of {plan.collaborators} sites."
    return sentences.setting_sentence(result)


def _group(size: float, group: ReportedGroupRisk) -> tuple[str, str, str]:
    whom = f"the worst {percent(size)}"
    if group.worst is None:
        return whom, TOO_FEW, ""
    between = interval(group.bound, group.likely)
    return whom, loss_text(group.worst, 4), between


def _certified(certificate: Certificate, place: str) -> Iterator[str]:
    worst = main_statement(certificate)
    yield f"**{_text(sample_sentence(certificate, worst))}**"
    yield ""
    yield _text(population_sentence(certificate, worst))
    yield ""
    yield _text(" ".join(mixture_sentences(certificate)))
    yield ""
    if certificate.issuer is None:
        yield "The certificate is NOT SIGNED: anybody could have made it."
    else:
        yield (
            f"The certificate says that {certificate.issuer.name} signed it. This card was made without checking "
            f"that: run `fedfair certificate verify {place}`."
        )
    yield ""
    yield "It does not mean more than this:"
    yield ""
    yield from _bullets(limits(certificate))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(headings)
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield _row([_text(cell) for cell in row])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _bullets(told: Iterable[str]) -> Iterator[str]:
    return (f"- {_text(sentence)}" for sentence in told)


def _text(words: str) -> str:
    """Return words that Markdown shows as they are, on one line."""
    plain = " ".join(words.split())
    for sign in "\\`*_[]<>|#":
        plain = plain.replace(sign, f"\\{sign}")
    return plain
