"""Reads a site's own records for a check before it has keys, certificates or an approval; nothing is sent.

Only the plan, the site's own file and the records must be there. Code that a plan names runs where the site's
policy lets it, as at a start.
"""

from __future__ import annotations

from pathlib import Path

from collaborator.own_name import own_name
from collaborator.plan_code import plan_code
from fedfair.data.column_check import DataCheck, check_data
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.site_config import load_site_config
from fedfair.policy.terms import AskedTerms, code_fault


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
    plan, config = load_plan(plan_file), load_site_config(config_file)
    participant = own_name(plan, config, config_file, name)
    workspace = workspace_of(plan_file)
    code = plan_code(plan.task.references, workspace, frozen=bool(config.policy.module_code))
    broken = code_fault(AskedTerms(plan, code.digest), config.policy)
    if broken is not None:
        raise PolicyError(participant, (broken,))
    return check_data(plan, config, participant, workspace, code=code.folder)
