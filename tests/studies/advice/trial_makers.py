"""Tried settings made by hand, with the figures that a test is about."""

from collections.abc import Sequence

from fedfair.studies.advice.document import (
    AdviceDocument,
    AdviceTrials,
    AdvisedFigures,
    AdvisedGroup,
    TriedSetting,
)
from fedfair.studies.advice.settings import EXCESS, PLAIN, AdvisedSetting
from fedfair.studies.advice.trial_choice import chosen_place, recommended
from tests.studies.advice.advice_makers import GUESS, advice

LOSS = AdvisedSetting("loss", 0.3, 0.3)


def tried(
    setting: AdvisedSetting,
    mean: float = 0.4,
    *,
    cost: float = 0.0,
    cost_error: float = 0.004,
    gain: float = 0.0,
    base_gain: float | None = 0.2,
) -> TriedSetting:
    """Return the figures of a setting whose worst group has 1.9, but for its gain."""
    sizes = sorted({0.1, 0.2, 0.3, 0.5, *([] if setting.is_plain else [setting.worst_group_size])})
    groups = tuple(AdvisedGroup(size=size, worst=1.9 - gain, error=0.05) for size in sizes)
    held = AdvisedFigures(mean=mean, error=0.01, accuracy=0.8, groups=groups)
    return TriedSetting(
        measure=setting.measure, worst_group_size=setting.worst_group_size, tradeoff=setting.tradeoff,
        learning_rate=setting.learning_rate, held_out=held, train=held, mean_cost=cost, mean_cost_error=cost_error,
        worst_gain=gain, worst_gain_error=0.02, base_gain=base_gain,
        base_gain_error=None if base_gain is None else 0.01, untrained=0,
    )  # fmt: skip


def trials(found: Sequence[TriedSetting]) -> AdviceTrials:
    return AdviceTrials(
        rounds=60, folds=2, parts=4, records=200, base_rate=0.6, tried=tuple(found), chosen=chosen_place(found)
    )


def tried_advice(found: Sequence[TriedSetting] = (), **changed: object) -> AdviceDocument:
    """Return a whole document of a quick look, by default with the excess chosen."""
    made = trials(found or [tried(PLAIN), tried(EXCESS, 0.405, cost=0.005, gain=0.3)])
    found_setting = recommended(made, 0.1, GUESS)
    return advice(fitted="trials", rounds=60, trials=made, recommendation=found_setting, **changed)
