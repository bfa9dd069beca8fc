"""`site.yaml`: when and with what a site runs the studies that it has approved, and what it keeps of them.

Decides nothing about consent: who must agree stands in `approvers.yaml`, what a plan may ask in the policy of
`collaborator.yaml`. A site without the file has the defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from fedfair.errors import FedfairError
from fedfair.plan import fields
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import read_document

SETTINGS_FILE = "site.yaml"
SITE_FILE = "collaborator.yaml"

_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):[0-5][0-9]")


def _check_clock(text: str) -> str:
    if not _CLOCK.fullmatch(text):
        raise FedfairError(f"{text!r} is no time of day", "write hours and minutes, such as 18:00")
    return text


Clock = Annotated[str, fields.parsed_by(_check_clock)]


class HoursSection(fields.Section):
    """The hours of the day in which this site computes, by its own clock."""

    begin: Clock
    """time of day from which studies run, such as 18:00"""
    end: Clock
    """time of day until which they run; earlier than begin: until the next day"""
    outside: Literal["finish", "stop"] = "finish"
    """finish: a study that runs goes on, and none begins; stop: studies stop, and return in the next hours"""

    def include(self, now: time) -> bool:
        """Return whether a time of day is in these hours."""
        begin, end = time.fromisoformat(self.begin.zfill(5)), time.fromisoformat(self.end.zfill(5))
        if begin < end:
            return begin <= now < end
        return now >= begin or now < end


class DiskSection(fields.Section):
    """The room that studies may take, and what goes first where it is short."""

    limit_gib: fields.PositiveFloat = 50.0
    """most that the folder studies/ may hold, in GiB, above 0"""
    archive_mib: fields.PositiveFloat = 1100.0
    """the largest archive of one study that is fetched, in MiB, above 0"""


class SiteSettings(fields.Section):
    """When and with what a site runs studies."""

    at_once: fields.PositiveInt = 1
    """studies that run at the same time, at least 1"""
    first: fields.Items[fields.Text] = ()
    """names of studies that run before others, in this order; the rest run in the order in which the hub started
    them"""
    yield_after_minutes: fields.PositiveFloat = 30.0
    """a study that has not moved for so long gives its place to one that waits, above 0"""
    gpus: fields.Items[Annotated[int, Field(ge=0)]] = ()
    """numbers of the GPUs that studies use, one for each study that runs; empty: whatever a study finds"""
    memory_gib: fields.PositiveFloat | None = None
    """most memory that the processes of one study may take for their data, in GiB, above 0; null for any"""
    hours: HoursSection | None = None
    """hours of the day in which studies run; null for all"""
    disk: DiskSection = DiskSection()
    """room for archives and runs"""
    site_files: dict[fields.Text, fields.Text] = Field(default={})
    """file in place of collaborator.yaml by study, for a study of other records: {stroke-2027: stroke.yaml}; it
    lies in the same folder"""

    def faults(self) -> Iterator[fields.Fault]:
        """Yield what is wrong: a GPU that is named twice, fewer GPUs than studies, a file that lies elsewhere."""
        for index, number in fields.repeated(self.gpus):
            yield fields.Fault(("gpus", index), f"names GPU {number} twice", "name each GPU once")
        if self.gpus and len(self.gpus) < self.at_once:
            yield fields.Fault(
                ("at_once",),
                f"is {self.at_once}, but gpus names {len(self.gpus)}",
                "name a GPU for each study that runs at the same time, or lower at_once",
            )
        for study, file in self.site_files.items():
            if Path(file).name != file:
                yield fields.Fault(
                    ("site_files", study),
                    f"is {file!r}, which is no file of this site's folder",
                    "put it beside collaborator.yaml and name it without a folder",
                )

    def site_file(self, study: str) -> str:
        """Return the name of the file that says where this site's records for a study are."""
        return self.site_files.get(study, SITE_FILE)


def load_settings(folder: Path) -> SiteSettings:
    """Return the settings of a site; the defaults where there is no file.

    Args:
        folder: of the site.

    Raises:
        PlanError: the file cannot be read or breaks the schema; the message tells all faults with their lines.
    """
    path = folder / SETTINGS_FILE
    return validated(SiteSettings, read_document(path)) if path.exists() else SiteSettings()
