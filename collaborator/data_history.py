"""Keeps a summary of a site's records at its last start: `state/<name>.data-profile.json`, for this site alone.

Decides where the summary is, and that nothing about it stops a start or a check: a file that cannot be read is
said to be so, and the next start replaces it. What is worth a word is `fedfair.tables.profile`'s business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from collaborator.preparation import PreparedSite
from fedfair.store.atomic_file import OWNER_ONLY, write_whole
from fedfair.tables.profile import DataProfile, DataSummary, changes, summary_of

_SUMMARIES = TypeAdapter(DataSummary)


@dataclass(frozen=True, slots=True)
class DataComparison:
    """This site's records beside those of its last run.

    Attributes:
        since: when that run was started, ISO 8601 in UTC; None where none is known.
        changes: one phrase for each change.
        fault: why the two cannot be compared; empty where they can, and before the first run.
    """

    since: str | None
    changes: tuple[str, ...] = ()
    fault: str = ""

    @property
    def words(self) -> str:
        """One line; empty before the first run."""
        if self.fault or self.since is None:
            return self.fault
        day = self.since[:10]
        if not self.changes:
            return f"nothing changed since the run of {day}"
        return f"changed since the run of {day}: {'; '.join(self.changes)}"


def summary_path(site: PreparedSite) -> Path:
    """Return where the summary of the last run is."""
    return site.state / f"{site.writer}.data-profile.json"


def keep_summary(site: PreparedSite, profile: DataProfile, now: datetime) -> None:
    """Write down what the records look like at a start, in place of the last one.

    Raises:
        OSError: the file cannot be written, or a data file cannot be read again.
    """
    summary = summary_of(profile, _file_digests(site, profile), now.isoformat(timespec="seconds"))
    site.state.mkdir(parents=True, exist_ok=True)
    write_whole(summary_path(site), _SUMMARIES.dump_json(summary, indent=1).decode() + "\n", OWNER_ONLY)


def compare_with_last_run(site: PreparedSite, profile: DataProfile, now: datetime) -> DataComparison:
    """Return what changed since the last start; whatever is wrong with the file is words, not a fault."""
    path = summary_path(site)
    try:
        before = _SUMMARIES.validate_json(path.read_bytes())
        files = _file_digests(site, profile)
    except FileNotFoundError:
        return DataComparison(None)
    except OSError as error:
        reason = error.strerror or str(error)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
    else:
        return DataComparison(before.written, changes(before, summary_of(profile, files, now.isoformat())))
    return DataComparison(None, fault=f"{path} cannot be compared with: {reason}; the next start replaces it")


def _file_digests(site: PreparedSite, profile: DataProfile) -> Mapping[str, str]:
    """Return the digest of each single file that holds records, or of what a database returned.

    A folder of files has none.
    """
    if profile.digests:
        return profile.digests
    data = site.config.data
    paths = {"train": data.train, "test": data.test}
    return {role: _digest(Path(path)) for role, path in paths.items() if path is not None and Path(path).is_file()}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
