"""One site's own records for computations that stay here: no aggregator, no key and no approval is needed.

Decides who the site is and that its policy lets the plan's own code run; everything else of a policy is about what
leaves the site, and nothing does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collaborator.plan_code import plan_code
from fedfair.data.dataset import Splits
from fedfair.data.source import read_site_records
from fedfair.errors import PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.site_config import load_site_config
from fedfair.policy.terms import AskedTerms, code_fault


@dataclass(frozen=True, slots=True)
class OwnRecords:
    """The records of one site.

    Attributes:
        participant: the site's name in the plan.
        splits: its records, as a run of the plan reads them.
        code: the folder in which the plan's own code is found.
    """

    participant: ParticipantId
    splits: Splits
    code: Path


def own_records(plan: Plan, config_file: Path, workspace: Path) -> OwnRecords:
    """Return a site's own records.

    Args:
        plan: its copy of the plan.
        config_file: its `collaborator.yaml`.
        workspace: the folder that the plan belongs to.

    Raises:
        FedfairError: a file cannot be read or is wrong, the site is not in the plan, or its policy does not let
            the plan's own code run.
    """
    config = load_site_config(config_file)
    name = ParticipantId(config.collaborator)
    if name not in plan.federation.collaborators:
        raise PlanError(
            f"{config_file} is of {name}, which is no collaborator of '{plan.federation.name}'",
            f"the plan names {', '.join(plan.federation.collaborators)}",
        )
    code = plan_code(plan.task.references, workspace, frozen=bool(config.policy.module_code))
    broken = code_fault(AskedTerms(plan, code.digest), config.policy)
    if broken is not None:
        raise PolicyError(name, (broken,))
    splits = read_site_records(plan, config, name, workspace, code=code.folder).splits
    return OwnRecords(name, splits, code.folder)
