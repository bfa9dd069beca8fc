"""A model card in Markdown: how the worst-off fare, what is certified, what the model takes and does not show.

Decides the order, in which the worst group comes first, and that model, result and certificate belong together.
Every sentence is made where reports and certificates make theirs. Source of the form: Mitchell et al. 2019, "Model
cards for model reporting".
"""

from __future__ import annotations

import math

from fedfair.aggregation.requests import vector_sha256
from fedfair.certificate.check import check_figures, check_model
from fedfair.certificate.document import Certificate
from fedfair.certificate.excerpt import check_result
from fedfair.certificate.sentences import in_words
from fedfair.errors import DataError
from fedfair.plan.description import percent
from fedfair.plan.digest import format_digest
from fedfair.report import sentences
from fedfair.report.baseline_lines import baseline_lines
from fedfair.report.calibration_lines import calibration_lines
from fedfair.report.figure_names import OVERALL, TOO_FEW, UNIFORM_GUESS, interval
from fedfair.report.model_facts import column_facts, model_facts
from fedfair.report.set_section import set_lines
from fedfair.report.tables import SPLIT_WORDS, metric_rows
from fedfair.results.document import ResultDocument
from fedfair.results.loss_text import loss_text
from fedfair.results.risks import ReportedGroupRisk
from fedfair.results.warnings import which_model
from fedfair.run.saved_model import DescribedModel
from fedfair.templates import filled

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
    split, risk = result.shown
    return filled(
        "fedfair.report",
        "model_card.md.jinja",
        model=model,
        result=result,
        certificate=certificate,
        place=place,
        words=None if certificate is None else in_words(certificate),
        risk=risk,
        whom=SPLIT_WORDS[split],
        told=(*which_model(result), *(() if result.verdict is None else result.verdict.sentences)),
        rows=_rows(result),
        metrics=[(name, ", ".join(values)) for name, *values in metric_rows(risk.metrics or {})],
        returned=[
            *baseline_lines(result),
            *calibration_lines(result),
            *set_lines(result),
            *sentences.about_references(result),
        ],
        about_the_loss=sentences.about_the_loss(result),
        whose=_whose(result),
        facts=model_facts(model),
        columns=[*column_facts(model)],
        protected=[*sentences.protection_sentences(result), *sentences.privacy_sentences(result)],
        limits=sentences.limits(sentences.labelled({"result.json": result})),
        plain=_plain,
    )


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


def _rows(result: ResultDocument) -> list[tuple[str, str, str]]:
    """Return the losses: the worst group that training protects first, the overall mean and guessing last."""
    _, risk = result.shown
    groups = [(float(key), group) for key, group in risk.by_group_size.items()]
    groups.sort(key=lambda item: (item[0] != result.worst_group_size, item[0]))
    rows = [_group(*item) for item in groups]
    rows.append((OVERALL, loss_text(risk.mean, 4), ""))
    if result.uniform_floor is not None:
        rows.append((UNIFORM_GUESS, loss_text(result.uniform_floor, 4), ""))
    return rows


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
    return whom, loss_text(group.worst, 4), interval(group.bound, group.likely)


def _plain(words: str) -> str:
    """Return words that Markdown shows as they are, on one line."""
    line = " ".join(words.split())
    for sign in "\\`*_[]<>|#":
        line = line.replace(sign, f"\\{sign}")
    return line
