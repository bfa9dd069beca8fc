"""Which collaborator a site's configuration is of, and the code that the plan names, as it will run there.

Where the site's policy names digests, the code is copied first, into a folder of this process alone: what is
digested, compared with the policy and imported is that copy, whatever happens to the workspace meanwhile. A policy
that allows any code takes it from the workspace itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.ids import ParticipantId, parse_participant_id
from fedfair.plan.digest import code_digest
from fedfair.plan.module_code import code_digests
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig
from fedfair.training.frozen_code import frozen_code


def site_name(plan: Plan, config: SiteConfig, config_file: Path, name: str | None) -> ParticipantId:
    """Return the name of a site in the plan.

    Args:
        plan: the plan.
        config: the site's configuration.
        config_file: where that was read.
        name: as the operator states it; None for the one in the configuration.

    Raises:
        FedfairError: the names are not the same, or the plan does not have it.
    """
    participant = parse_participant_id(config.collaborator if name is None else name)
    if config.collaborator != participant:
        raise PlanError(
            f"{config_file} is the configuration of {config.collaborator}, not of {participant}",
            "give the right file with -c, or the right name with -n",
        )
    if participant not in plan.federation.collaborators:
        raise PlanError(
            f"{participant} is no collaborator of '{plan.federation.name}'",
            f"the plan names {', '.join(plan.federation.collaborators)}",
        )
    return participant


@dataclass(frozen=True, slots=True)
class PlanCode:
    """The path and the digest of a plan's code.

    Attributes:
        folder: what modules are looked for in.
        digest: 32 bytes, over all of it; None where the plan names none.
    """

    folder: Path
    digest: bytes | None


def plan_code(references: tuple[str, ...], workspace: Path, *, frozen: bool) -> PlanCode:
    """Return the code of a plan; none of it is run.

    Args:
        references: texts of the form "module:function".
        workspace: where they are looked for.
        frozen: whether to copy it first; the copy is removed when this process ends.

    Raises:
        PlanError: a module has no source in the workspace, or a file cannot be read.
    """
    if not references:
        return PlanCode(workspace, None)
    folder = frozen_code(references, workspace) if frozen else workspace
    return PlanCode(folder, code_digest(code_digests(references, folder)))
