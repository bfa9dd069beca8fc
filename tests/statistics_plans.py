"""Plans and files of statistics for tests: four clinics, each with a small table of its own."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

NAMES = ("clinic-a", "clinic-b", "clinic-c", "clinic-d")
RECORDS = 120

TABLE: Mapping[str, object] = {
    "numeric": ["glucose", "age"],
    "categorical": {"sex": ["F", "M"], "ward": ["north", "south"]},
    "missing": "mean",
    "train_of": {name: f"{name}.csv" for name in NAMES},
}

ASKED: Mapping[str, object] = {
    "age": {"bins": [20, 40, 60, 80], "mean": True, "between": [0, 120]},
    "glucose": {"mean": True, "between": [2, 20]},
    "ward": {"count": True},
}


def stated(
    *,
    names: tuple[str, ...] = NAMES,
    table: Mapping[str, object] | None = None,
    fewest: int | None = None,
    **statistics: object,
) -> dict[str, object]:
    """Return a plan of statistics as its file states it; `statistics` lie over the usual ones."""
    return {
        "federation": {"name": "wards", "collaborators": list(names), "min_collaborators": fewest},
        "task": {"data": {"csv": {**TABLE, **(table or {})}}},
        "statistics": {"columns": dict(ASKED), "epsilon": 1.0, **statistics},
    }


def write_tables(folder: Path, names: tuple[str, ...] = NAMES, records: int = RECORDS) -> None:
    """Write each clinic's own table."""
    for place, name in enumerate(names):
        (folder / f"{name}.csv").write_text(rows(place, records))


def rows(seed: int, records: int) -> str:
    draws = np.random.default_rng(seed)
    lines = ["glucose,age,sex,ward"]
    for _ in range(records):
        glucose = f"{draws.lognormal(1.7, 0.3):.2f}" if draws.random() > 0.1 else ""
        ward = draws.choice(["north", "south", "attic"], p=[0.5, 0.4, 0.1])
        lines.append(f"{glucose},{draws.integers(10, 90)},{draws.choice(['F', 'M'])},{ward}")
    return "\n".join(lines) + "\n"
