"""The survey in the state of a run: it is kept whole, and nothing that is summed later depends on it. No torch."""

from __future__ import annotations

from fedfair.run.opened_sum import KeepingRule, RunSetting
from fedfair.statistics.table import Purpose


def rule(setting: RunSetting) -> KeepingRule:
    """Return the rule of a survey in the runs of a plan."""
    return KeepingRule(Purpose.SURVEY, setting)
