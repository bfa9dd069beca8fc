"""A site's policy beside what a plan asks, term by term, as `fedfair plan check -c` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from fedfair.errors import PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.derived import given_references
from fedfair.plan.digest import code_digest
from fedfair.plan.loading import workspace_of
from fedfair.plan.module_code import code_digests
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import load_site_config

if TYPE_CHECKING:
    from fedfair.policy.terms import Term


def site_terms(plan: Plan, plan_file: Path, config_file: Path) -> tuple[str, tuple[Term, ...]]:
    """Return a site's name and every term of its policy that the plan touches.

    Raises:
        PlanError: a file is unreadable or wrong, the site is no collaborator of the plan, or the form of its
            records does not go with the plan.
        FedfairError: the plan begins elsewhere than the site's own copy of the earlier run says.
    """
    site = load_site_config(config_file)
    if site.collaborator not in plan.federation.collaborators:
        raise PlanError(
            f"{site.collaborator} of {config_file} is no collaborator of this plan",
            f"the plan names {', '.join(plan.federation.collaborators)}",
        )
    from fedfair.policy.terms import AskedTerms, terms
    from fedfair.tables.site_form import check_form

    check_form(plan.task, site.data.format)
    own_run = False
    if plan.training.initial is not None or given_references(plan) is not None:
        from collaborator.continued_run import begins_with_own_run

        home, name = config_file.parent, ParticipantId(site.collaborator)
        own_run = begins_with_own_run(home / "runs" / name, home / "state", name, plan)
    asked = AskedTerms(plan, plan_code_digest(plan, plan_file), own_run=own_run)
    return site.collaborator, tuple(terms(asked, site.policy))


def plan_code_digest(plan: Plan, plan_file: Path) -> bytes | None:
    """Return the digest of all code that a plan names, which is not run; None where it names none."""
    references = plan.task.references
    return code_digest(code_digests(references, workspace_of(plan_file))) if references else None


def terms_table(name: str, held: tuple[Term, ...]) -> Table:
    """Return the terms for a terminal."""
    table = Table("", f"policy of {name}", box=None, pad_edge=False)
    # Digests are longer than a column; somebody has to copy them.
    for heading in ("the plan asks", "the site allows", "what to do, if you agree"):
        table.add_column(heading, overflow="fold")
    for term in held:
        mark = Text("✓", style="green") if term.kept else Text("✗", style="bold red")
        table.add_row(mark, Text(term.key), Text(term.asked), Text(term.allowed), Text(term.change))
    return table


def broken_terms(held: tuple[Term, ...]) -> Iterator[str]:
    """Yield what the site refuses of the plan, with the remedy."""
    for term in held:
        if not term.kept:
            yield f"{term.fault}; {term.change}" if term.change else term.fault


def terms_json(name: str, held: tuple[Term, ...]) -> dict[str, object]:
    """Return the same for programs."""
    rows = [
        {
            "term": term.key,
            "asked": term.asked,
            "allowed": term.allowed,
            "ok": term.kept,
            "fault": term.fault,
            "remedy": term.change,
        }
        for term in held
    ]
    return {"collaborator": name, "policy": rows}
