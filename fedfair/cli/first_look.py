"""The first look of `workspace create --from FILE`: what the quick advice says of the drafted plan on this file.

Decides where a look is not taken, and what is then said. The advice is the business of `fedfair.studies.advice`.
Nothing is written here.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedfair.errors import FedfairError
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.workspace.create import PLAN_FILE, AdvisedValues, Members, plan_text

if TYPE_CHECKING:
    from fedfair.studies.advice.document import AdviceDocument

MOST_SITES = 3
"""Records are dealt to no more sites than these, however many there will be: each makes a look take longer."""

FEWEST_RECORDS = 50
LARGEST_FILE = 300 * 1024 * 1024
"""In bytes. A larger file takes longer to read than a look may take."""

LATER = (
    "once data.train of collaborator.yaml names the file, `fedfair plan advise -c collaborator.yaml` looks at it"
)


@dataclass(frozen=True, slots=True)
class FirstLook:
    """The outcome of a look.

    Attributes:
        advice: on the drafted plan; None where none could be had.
        advised: the values to write; None where the template's stay.
        reasons: in sentences, of what is written.
    """

    advice: AdviceDocument | None
    advised: AdvisedValues | None
    reasons: tuple[str, ...]


def first_look(table: Path, federation: str, members: Members, task: str) -> FirstLook:
    """Return what the quick advice says of a drafted plan.

    Args:
        table: the file that the draft was made from.
        federation: a valid name.
        members: the sites.
        task: the drafted lines of the plan's task.
    """
    size = table.stat().st_size
    if size > LARGEST_FILE:
        return _unseen(f"the file has {size / 1024**2:.0f} MB, and a look would take minutes")
    from fedfair.process.bars import fits_bar
    from fedfair.studies.advice.search import AdviceGrid, advise_sites
    from fedfair.tables.source import load_federation

    try:
        plan = _on_file(federation, members, task, table)
        sites = load_federation(plan, table.resolve().parent)
        records = sum(site.records for site in sites.values())
        if records < FEWEST_RECORDS:
            return _unseen(f"{records} records are too few to tell settings apart")
        with fits_bar(quiet=False) as fitted:
            advice = advise_sites(plan, sites, table.resolve().parent, AdviceGrid(quick=True), fitted)
    except FedfairError as fault:
        return _unseen(fault.message)
    return _told(plan, advice)


def _unseen(why: str) -> FirstLook:
    return FirstLook(None, None, (f"not looked at: {why}; the plan has the usual objective; {LATER}",))


def _on_file(federation: str, members: Members, task: str, table: Path) -> Plan:
    """Return the plan that would be written, with the records of the file dealt to a few sites at random."""
    few = replace(members, collaborators=members.collaborators[:MOST_SITES])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, PLAN_FILE)
        place.parent.mkdir()
        place.write_text(plan_text(federation, "csv", few, task), encoding="utf-8")
        plan = load_plan(place)
    stated = plan.task.model_dump(mode="json", exclude_unset=True)["data"]["csv"]
    data = {"csv": {**stated, "train": str(table.resolve())}}
    return plan.with_(task={"data": data, "partition": {"scheme": "random"}})


def _told(plan: Plan, advice: AdviceDocument) -> FirstLook:
    from fedfair.plan.derived import measure_of
    from fedfair.plan.learning_rates import adapts_steps, server_optimizer_of
    from fedfair.studies.advice.settings import plan_with, recommended_setting
    from fedfair.studies.advice.words import plan_comment

    found = advice.recommendation
    if found is None:
        return FirstLook(advice, None, advice.sentences)
    wanted = plan_with(plan, recommended_setting(found))
    optimizer = ""
    if found.learning_rate is not None and adapts_steps(wanted):
        optimizer = f"{{name: {server_optimizer_of(wanted).name}, learning_rate: {found.learning_rate:g}}}"
    stated = wanted.objective
    values = AdvisedValues(
        measure_of(wanted),
        stated.worst_group_size,
        stated.tradeoff,
        found.kind == "plain",
        optimizer,
        plan_comment(advice),
    )
    return FirstLook(advice, values, advice.sentences)
