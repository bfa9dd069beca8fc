"""The form of a file of records that is given to a command: from a site's own configuration, or as it is typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import parse_document
from fedfair.policy.site_config import load_site_config
from fedfair.policy.site_format import FormatSection
from fedfair.tables.site_form import KEY

OPTION = "--format"


@dataclass(frozen=True, slots=True)
class StatedForm:
    """A form, and where it is stated, for faults."""

    section: FormatSection
    key: str


def own_form(config: Path | None, typed: str | None) -> StatedForm | None:
    """Return how a file is written; None where it is written as the plan says.

    Args:
        config: a site's `collaborator.yaml`, whose `data.format` counts; None for none.
        typed: the same keys as one text of YAML; None where none was given.

    Raises:
        PlanError: both are given, or one of them cannot be read or breaks the schema.
    """
    if config is not None and typed is not None:
        raise PlanError(f"--config and {OPTION} both say how the records are written", "give one of them")
    if typed is not None:
        return StatedForm(validated(FormatSection, parse_document(typed, Path(OPTION))), OPTION)
    section = None if config is None else load_site_config(config).data.format
    return None if section is None else StatedForm(section, f"{config}: {KEY}")
