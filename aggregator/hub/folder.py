"""The folder of a hub.

consortium.yaml                what the lead signed; the record has every list since
hub.yaml                       how many studies run at once, and how much may be brought
cert/                          the hub's identity, as an aggregator's
record/acts.jsonl              the record of all acts
archives/HEX.zip               what was submitted, by SHA-256; archives/uploads/NAME/ is on its way
results/HEX.zip                results, by SHA-256
studies/NAME/{workspace,save,logs,received,result.json}   a run each
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from fedfair.plan import fields
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import read_document

SETTINGS_TEXT = """# Of this hub. Every line may be left out.
at_once: 4               # studies that run at the same time; others wait in the order of the record
archive_bytes: 268435456 # the longest archive that is taken
"""


class HubSettings(fields.Section):
    """What the operator of a hub decides."""

    at_once: int = Field(default=4, ge=1, le=100)
    """studies that run at the same time, 1 to 100; others wait in the order in which they were submitted"""
    archive_bytes: int = Field(default=1 << 28, ge=1, le=1 << 31)
    """bytes of the longest archive that is taken, at most 2147483648"""


@dataclass(frozen=True, slots=True)
class HubFolder:
    """The paths of a hub.

    Attributes:
        path: the folder.
    """

    path: Path

    @property
    def certificates(self) -> Path:
        """The folder of the hub's identity."""
        return self.path / "cert"

    @property
    def record(self) -> Path:
        """The record of all acts."""
        return self.path / "record" / "acts.jsonl"

    @property
    def archives(self) -> Path:
        """The folder of what was submitted."""
        return self.path / "archives"

    @property
    def uploads(self) -> Path:
        """The folder of archives on their way."""
        return self.archives / "uploads"

    @property
    def results(self) -> Path:
        """The folder of results."""
        return self.path / "results"

    @property
    def settings_file(self) -> Path:
        """The operator's decisions."""
        return self.path / "hub.yaml"

    def archive(self, digest: bytes) -> Path:
        """Return the file of a submitted archive."""
        return self.archives / f"{digest.hex()}.zip"

    def result(self, digest: bytes) -> Path:
        """Return the file of a result."""
        return self.results / f"{digest.hex()}.zip"

    def study(self, name: str) -> Path:
        """Return the folder of a study's run."""
        return self.path / "studies" / name

    def settings(self) -> HubSettings:
        """Return the operator's decisions; the defaults where there is no file.

        Raises:
            PlanError: the file cannot be used.
        """
        if not self.settings_file.exists():
            return HubSettings()
        return validated(HubSettings, read_document(self.settings_file))
