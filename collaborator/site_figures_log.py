"""This site's log of how its own records fare: `logs/<name>_own_figures.jsonl`, one JSON line per evaluation.

Only the owner of the file can read it, and nothing of it is ever sent: this module knows no link and no message.
Each line says of which model all its figures are, and the last one of a finished run is of the model it returned.
Each line has `time` and `run_id`, as the site's other logs do. It begins a new file in time and forgets the oldest
one. What the figures are is said in `results.site_figures`.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from fedfair.process.log_lines import log_line
from fedfair.results.site_figures import SiteFigures, SplitFigures
from fedfair.store.disk import writing
from fedfair.store.rotated_log import MAX_LOG_BYTES, RotatedLog


class SiteFiguresLog:
    """The log of one collaborator; its file is made by the first line.

    Args:
        folder: of this site's logs, which exists.
        name: the collaborator.
        max_log_bytes: the most that one file holds before a new one is begun.
    """

    def __init__(self, folder: Path, name: str, max_log_bytes: int = MAX_LOG_BYTES) -> None:
        self._log = RotatedLog(folder / f"{name}_own_figures.jsonl", max_bytes=max_log_bytes, owner_only=True)

    @property
    def path(self) -> Path:
        """Return the file."""
        return self._log.path

    def append(self, run_id: str, figures: SiteFigures) -> None:
        """Append the line of one evaluation.

        Args:
            run_id: the run.
            figures: of the evaluation.

        Raises:
            FedfairError: the line cannot be written.
        """
        fields = {
            "round": figures.round,
            "model": figures.model,
            "returned": figures.is_returned,
            "group_size": figures.group_size,
            "own": {name: _fields(split) for name, split in figures.own.items()},
            "everybody": {name: _fields(split) for name, split in figures.everybody.items()},
        }
        with writing(self._log.path):
            self._log.append(log_line(datetime.now(UTC), run_id, fields))

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def _fields(split: SplitFigures) -> dict[str, object]:
    """Return the figures of one split; the AUC only where there is one."""
    fields = asdict(split)
    if split.auc is None:
        del fields["auc"]
    return fields
