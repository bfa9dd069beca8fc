"""Reads a site's own records for a check before it has keys, certificates or an approval; nothing is sent.

Only the plan, the site's own file and the records must be there. Code that a plan names runs where the site's
policy lets it, as at a start.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collaborator.plan_code import plan_code, site_name
from fedfair.ids import ParticipantId
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.plan.schema import Plan
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.site_config import SiteConfig, load_site_config
from fedfair.policy.terms import AskedTerms, code_fault
from fedfair.tables.column_check import DataCheck, check_data
from fedfair.tables.dataset import Splits
from fedfair.tables.source import read_site_records


@dataclass(frozen=True, slots=True)
class OwnSite:
    """A site with its plan, of which nothing but files is known.

    Attributes:
        plan: its copy of the plan.
        config: its `collaborator.yaml`.
        participant: its name in the plan.
        workspace: where its paths start.
        code: the folder in which the plan's own code is found; the site's policy lets it run.
    """

    plan: Plan
    config: SiteConfig
    participant: ParticipantId
    workspace: Path
    code: Path


def own_site(name: str | None, config_file: Path, plan_file: Path) -> OwnSite:
    """Return a site by its files; arguments and faults as of `checked_data`."""
    plan, config = load_plan(plan_file), load_site_config(config_file)
    participant = site_name(plan, config, config_file, name)
    workspace = workspace_of(plan_file)
    code = plan_code(plan.task.references, workspace, frozen=bool(config.policy.module_code))
    broken = code_fault(AskedTerms(plan, code.digest), config.policy)
    if broken is not None:
        raise PolicyError(participant, (broken,))
    return OwnSite(plan, config, participant, workspace, code.folder)


def own_splits(site: OwnSite) -> Splits:
    """Return a site's own records as a run of the plan would read them.

    Raises:
        DataError: they are missing, unreadable, or not what the plan declares.
    """
    return read_site_records(site.plan, site.config, site.participant, site.workspace, code=site.code).splits


def checked_data(name: str | None, config_file: Path, plan_file: Path) -> DataCheck:
    """Return what a check of a site's own records finds.

    Args:
        name: of the site; None for the one of its file.
        config_file: its `collaborator.yaml`.
        plan_file: its copy of the plan.

    Raises:
        FedfairError: plan or configuration are wrong, the site is not in the plan, or its policy does not let the
            plan's own code run. What is wrong with the records is in the outcome.
    """
    site = own_site(name, config_file, plan_file)
    return check_data(site.plan, site.config, site.participant, site.workspace, code=site.code)
