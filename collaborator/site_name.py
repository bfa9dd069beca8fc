"""Decides which collaborator of a plan a site's own configuration is of."""

from __future__ import annotations

from pathlib import Path

from fedfair.errors import PlanError
from fedfair.ids import ParticipantId, parse_participant_id
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig


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
