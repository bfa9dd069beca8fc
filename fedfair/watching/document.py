"""The status of a run as JSON, `fedfair/status/1`: what `/healthz` answers and `fedfair status` reads.

Times are ISO 8601 in UTC, losses in `loss_unit`. A reader takes what it knows and looks at nothing else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from fedfair.watching.run_status import RunStatus, up_to

FORMAT = "fedfair/status/1"

_OF_ANOTHER_FORM = {
    "sites", "step", "step_since", "awaited", "awaited_until", "waiting_words", "withdrawn", "evaluation",
    "history", "stride", "evaluations", "round_ends", "notes", "totals", "awaited_seconds",
    "answer_seconds", "behind",
}  # fmt: skip
"""The fields of a status that the document has in another form, or not at all; any other is there as it is."""


def status_document(status: RunStatus, now: datetime) -> dict[str, Any]:
    """Return the status as JSON values.

    Args:
        status: the status.
        now: the time, with a time zone.
    """
    seconds, present = up_to(status, now).awaited_seconds, frozenset(status.connected)
    plain = (one.name for one in fields(status) if one.name not in _OF_ANOTHER_FORM)
    return {
        "format": FORMAT,
        **{name: _plain(getattr(status, name)) for name in plain},
        "time": _stamp(now),
        "rounds_per_second": _rounded(status.rounds_per_second),
        "last_round_age_seconds": _rounded(status.last_round_age(now)),
        "sum": {name: getattr(status.step, name) for name in ("purpose", "round", "attempt", "phase")},
        "sites": {
            name: {
                "connected": name in present,
                "awaited_since": _stamp(status.awaited.get(name)),
                "awaited_seconds": _rounded(sum(seconds.get(name, {}).values())),
                "withdrew": status.withdrawn.get(name),
                "answer_seconds": _rounded(status.answer_seconds.get(name)),
                "left_behind": int(status.total("left_behind_answers", name)),
                "left_behind_since": _stamp(status.behind.get(name)),
            }
            for name in status.sites
        },
        "awaited": list(status.awaited),
        "awaited_until": _stamp(status.until),
        "waiting": status.waiting_words,
        "evaluation": None
        if status.evaluation is None
        else {
            "round": status.evaluation.round,
            "splits": {name: asdict(split) for name, split in status.evaluation.splits.items()},
        },
        "certificate_days_left": status.certificate_days(now),
        "totals": {
            name: {" ".join(labels): value for labels, value in sorted(values.items())}
            for name, values in sorted(status.totals.items())
        },
        "notes": [{"time": _stamp(note.at), "words": note.words} for note in status.notes],
    }


def status_text(status: RunStatus, now: datetime) -> bytes:
    """Return the document as UTF-8 text."""
    return (json.dumps(status_document(status, now), indent=2) + "\n").encode("utf-8")


def _stamp(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds")


def _plain(value: object) -> object:
    """Return a field of a status as a JSON value."""
    if isinstance(value, datetime):
        return _stamp(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return _rounded(value)
    return list(value) if isinstance(value, tuple) else value


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
