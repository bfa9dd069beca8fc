"""The form of a line in a log that programs read: JSON, with when it was written and of which run it tells.

Decides those two keys and nothing else; which further keys a line has is its writer's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime


def log_line(now: datetime, run_id: str, fields: Mapping[str, object]) -> str:
    """Return one line without its end: `time` and `run_id` first, then the writer's own keys.

    Args:
        now: when the line is written, with a time zone; it is written in UTC, to the millisecond.
        run_id: 32 hexadecimal digits that name the run; empty where the writer does not know the run yet.
        fields: what the line tells; everything in it can be written as JSON.
    """
    stamp = now.astimezone(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": stamp, "run_id": run_id, **fields})
