"""What an earlier advice says against a plan: where its recommendation differs, with the figures of both.

Decides which advice speaks about a plan: that of the same task, wherever its records are. The advice itself is a
file that `fedfair plan advise` or `fedfair workspace create` left in the workspace; nothing is computed here.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from fedfair.plan.schema import Plan
from fedfair.results.loss_text import loss_text
from fedfair.studies.advice.document import AdviceDocument, AdviceTrials, TriedSetting
from fedfair.studies.advice.settings import AdvisedSetting, rate_of, recommended_setting, setting_of, task_digest
from fedfair.studies.advice.words import USUAL_SIZE, loss_with_error, setting_words
from fedfair.templates import sentences


def advice_remarks(plan: Plan, place: Path) -> tuple[str, ...]:
    """Return what the advice in a file says against a plan: one sentence, or none where they agree.

    Args:
        plan: the plan.
        place: of `advice.json`. A file that is not there, or is no advice on this plan's task, says nothing.
    """
    try:
        advice = AdviceDocument.model_validate_json(place.read_bytes())
    except (OSError, ValidationError):
        return ()
    found, trials = advice.recommendation, advice.trials
    if found is None or trials is None or trials.chosen is None or advice.task_digest != task_digest(plan):
        return ()
    wanted = recommended_setting(found)
    if _agrees(plan, wanted):
        return ()
    return sentences(
        "fedfair.studies.advice",
        "remark.txt.jinja",
        place=place,
        chosen=trials.tried[trials.chosen],
        own=_tried(trials, setting_of(plan)),
        plan_rate=rate_of(plan),
        same=_same(setting_of(plan), wanted),
        size=USUAL_SIZE,
        words=setting_words,
        loss=loss_with_error,
        figure=loss_text,
    )


def _agrees(plan: Plan, wanted: AdvisedSetting) -> bool:
    rate = wanted.learning_rate
    return _same(setting_of(plan), wanted) and (rate is None or rate_of(plan) == rate)


def _same(one: AdvisedSetting, other: AdvisedSetting) -> bool:
    if one.is_plain or other.is_plain:
        return one.is_plain and other.is_plain
    return (one.measure, one.worst_group_size, one.tradeoff) == (
        other.measure,
        other.worst_group_size,
        other.tradeoff,
    )


def _tried(trials: AdviceTrials, setting: AdvisedSetting) -> TriedSetting | None:
    """Return the figures of a setting at the plan's own rate; None where it was not tried."""
    usual = [one for one in trials.tried if one.learning_rate is None]
    return next((one for one in usual if _same(_setting(one), setting)), None)


def _setting(tried: TriedSetting) -> AdvisedSetting:
    return AdvisedSetting(tried.measure, tried.worst_group_size, tried.tradeoff)
