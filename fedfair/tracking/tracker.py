"""The interface of a tracker, and the values that it is given.

Figures are those of `result.json`, events those of the notes; a tracker is given nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from fedfair.news.event import LoggedEvent
from fedfair.plan.description import summary
from fedfair.plan.schema import Plan
from fedfair.results.document import ResultDocument, UnfinishedResult
from fedfair.results.risks import Moment, PastRisk, SplitRisk
from fedfair.results.site_figures import SiteFigures

Figures: TypeAlias = Mapping[str, float]
"""Numbers by name; parts of a name are parted by a stroke."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run that is tracked.

    Attributes:
        run_id: names it; a tracker continues a run of the same name.
        federation: its federation.
        role: whose view it is: aggregator, simulation, or a site's name.
        facts: what was agreed, in words: plan digest, algorithm and so on.
    """

    run_id: str
    federation: str
    role: str
    facts: Mapping[str, str]

    @property
    def title(self) -> str:
        """The name for people."""
        return f"{self.federation} {self.role} {self.run_id[:8]}"


@dataclass(frozen=True, slots=True)
class TrackedEnd:
    """The end of a run.

    Attributes:
        state: finished, stopped or aborted.
        words: the same, for people.
        rounds: training rounds done.
        figures: of the output model; empty where it was not evaluated.
    """

    state: str
    words: str
    rounds: int
    figures: Figures


class Tracker(Protocol):
    """The interface of a tracker; only its own thread calls it.

    Attributes:
        faults: what its methods raise where a store is away, full or refuses; the call may be repeated.
    """

    faults: tuple[type[Exception], ...]

    def begin(self, run: TrackedRun) -> None:
        """Begin or continue the run; called again after a fault."""

    def event(self, when: datetime, event: LoggedEvent) -> None:
        """Take one notice."""

    def figures(self, when: datetime, number: int, figures: Figures) -> None:
        """Take the figures of the evaluation after a training round."""

    def end(self, when: datetime, end: TrackedEnd) -> None:
        """Take the end of the run, and close everything."""


def moment_figures(moment: Moment) -> dict[str, float]:
    """Return the figures of one evaluation on the way, as `result.json` has them."""
    found = {"threshold": moment.threshold}
    for name, risk in (("train", moment.train), ("validation", moment.validation), ("test", moment.test)):
        if risk is not None:
            found |= _risk_figures(name, risk)
    return found


def result_figures(result: ResultDocument | UnfinishedResult) -> dict[str, float]:
    """Return the figures of a result's output model, time and traffic; nothing of one without figures."""
    if isinstance(result, UnfinishedResult):
        return {}
    found = {"final/threshold": result.threshold}
    for name, risk in result.splits.items():
        if risk is not None:
            found |= {f"final/{key}": value for key, value in _risk_figures(name, risk).items()}
    if result.objective is not None and result.objective.rcvar is not None:
        found["final/rcvar"] = result.objective.rcvar
    if result.timing is not None:
        found["final/seconds"] = result.timing.seconds
    if result.traffic is not None:
        found |= {"final/bytes_up": result.traffic.bytes_up, "final/bytes_down": result.traffic.bytes_down}
    return found


def own_risk_figures(figures: SiteFigures) -> dict[str, float]:
    """Return a site's own and the overall figures of an evaluation, as its notes have them."""
    found: dict[str, float] = {}
    for whose, splits in (("own", figures.own), ("everybody", figures.everybody)):
        for name, split in splits.items():
            told = {"mean": split.mean, "worst": split.worst, "accuracy": split.accuracy, "auc": split.auc}
            found |= {f"{whose}/{name}/{key}": value for key, value in told.items() if value is not None}
    return found


def _risk_figures(split: str, risk: PastRisk | SplitRisk) -> dict[str, float]:
    found = {f"{split}/mean": risk.mean}
    if risk.accuracy is not None:
        found[f"{split}/accuracy"] = risk.accuracy
    for size, group in risk.by_group_size.items():
        if group.worst is not None:
            found[f"{split}/worst_{size}"] = group.worst
    return found


def tracked_facts(plan: Plan, plan_digest: str = "") -> dict[str, str]:
    """Return the facts by name.

    Args:
        plan: the plan that is run.
        plan_digest: its digest, "sha256:" and 64 hex digits; empty where it is known at the end only.
    """
    named = {"plan_digest": plan_digest} if plan_digest else {}
    named |= {
        "algorithm": plan.training.algorithm,
        "worst_group_size": f"{plan.objective.worst_group_size:g}",
        "tradeoff": f"{plan.objective.tradeoff:g}",
    }
    return named | {f"plan/{heading}": sentence for heading, sentence in summary(plan)}
