"""Statistics of columns in the state of a run: they are kept whole, and the run ends. No torch."""

from __future__ import annotations

from fedfair.run.opened_sum import KeepingRule, RunSetting
from fedfair.statistics.table import Purpose


def rule(setting: RunSetting) -> KeepingRule:
    """Return the rule of statistics in the runs of a plan."""
    return KeepingRule(Purpose.COLUMN_STATISTICS, setting)
