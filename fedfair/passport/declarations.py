"""`words.yaml`: what a model's provider declares and no file shows, as the passport quotes it.

provider: Heart consortium, c/o University Hospital, heart@example.org
purpose: flags patients for a second reading of the angiogram; no decision without a physician
not_for: [people under 18, screening of the general population]
oversight: a physician confirms or overrules each flag, and says why
version: "1.0"
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field

from fedfair.plan import fields
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import read_document

Line = Annotated[str, Field(min_length=1, max_length=2000)]

DRAFT = """\
# What the provider of the model declares. Replace every line; a passport quotes them.
provider: NAME, POSTAL ADDRESS, E-MAIL
purpose: WHAT THE MODEL IS FOR, WITH WHOM AND BY WHOM IT IS USED
not_for: [WHAT IT MUST NOT BE USED FOR]
oversight: WHO CHECKS AND OVERRULES IT, AND HOW
version: "1.0"
"""
"""A file to begin with."""


class Declarations(fields.Section):
    """The words of a provider; each a line of at most 2000 characters."""

    provider: Line
    """name and contact of whoever puts the model into use"""
    purpose: Line
    """the intended purpose: for what, with whom, by whom"""
    not_for: fields.Items[Line]
    """uses that are ruled out"""
    oversight: Line
    """the people who check and overrule the model, and how"""
    version: Line
    """version of the model, for people"""

    def faults(self) -> list[fields.Fault]:
        """Return a fault for every line of the draft that was left as it was."""
        drafted = Declarations.model_construct(**yaml.safe_load(DRAFT))
        told = {
            "provider": (self.provider, drafted.provider),
            "purpose": (self.purpose, drafted.purpose),
            "not_for": (list(self.not_for), list(drafted.not_for)),
            "oversight": (self.oversight, drafted.oversight),
        }
        return [
            fields.Fault((name,), f"still says {mine}", "write what is true of this model")
            for name, (mine, draft) in told.items()
            if mine == draft
        ]


def parse_declarations(path: Path) -> Declarations:
    """Return what a file declares.

    Raises:
        PlanError: the file cannot be read, or breaks the form; the message tells all faults.
    """
    return validated(Declarations, read_document(path))
