"""Tables and plans of tasks other than plain classes, small enough to be trained in a second."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.plan.schema import Plan
from tests.plans import NAMES, Section, parsed

RECORDS = 240
COLUMNS = ("x1", "x2", "x3")
LABELS = ("cough", "fever")
ENDS = (0.5, 1.0, 2.0)

Columns = Mapping[str, NDArray[np.float64]]

TASKS: Mapping[str, tuple[Section, object]] = {
    "squared": ({"target": "amount"}, {"name": "squared", "target_range": [-20, 20]}),
    "huber": ({"target": "amount"}, {"name": "huber", "delta": 0.5, "target_range": [-20, 20]}),
    "pinball": ({"target": "amount"}, {"name": "pinball", "quantile": 0.8, "target_range": [-20, 20]}),
    "binary": ({"label": "high"}, "binary"),
    "ordinal": ({"label": "grade", "label_values": [0, 1, 2, 3]}, "ordinal"),
    "multi_label": ({"labels": list(LABELS)}, "multi_label"),
    "multi_label_sum": ({"labels": list(LABELS)}, {"name": "multi_label", "reduction": "sum"}),
    "survival": ({"time": "days", "event": "died"}, {"name": "survival", "intervals": list(ENDS)}),
}
"""By a name the columns that are predicted, and the loss."""


def columns() -> Columns:
    """Return the columns of the table: float64 arrays (records,)."""
    source = np.random.default_rng(3)
    features = source.normal(size=(RECORDS, len(COLUMNS)))
    amount = np.clip(features @ [2.0, -1.0, 0.5] + 0.4 * source.standard_t(4, RECORDS), -19.0, 19.0)
    days = source.exponential(np.exp(0.5 * features[:, 0]))
    seen = source.exponential(2.0, RECORDS)
    return {
        **dict(zip(COLUMNS, features.T, strict=True)), "amount": amount, "high": (amount > 0.5).astype(np.float64),
        "grade": np.digitize(amount, [-1.0, 0.5, 2.0]).astype(np.float64),
        "cough": (features[:, 0] + source.normal(size=RECORDS) > 0.3).astype(np.float64),
        "fever": (features[:, 1] + source.normal(size=RECORDS) > 0.8).astype(np.float64),
        "days": np.minimum(days, seen), "died": (days <= seen).astype(np.float64),
        "site": np.arange(RECORDS) % len(NAMES),
    }  # fmt: skip


def write_table(folder: Path) -> Path:
    """Write the columns as a CSV file, and return its place."""
    table, path = columns(), folder / "table.csv"
    whole = {"high", "grade", "cough", "fever", "died", "site"}
    rows = zip(
        *((value.astype(int) if name in whole else value).tolist() for name, value in table.items()), strict=True
    )
    lines = [",".join(table), *(",".join(map(repr, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def task_of(name: str, **more: object) -> dict[str, object]:
    """Return `task` of a plan on the table."""
    answers, loss = TASKS[name]
    table = {**answers, "numeric": list(COLUMNS), "train": "table.csv"}
    return {"data": {"csv": table}, "loss": loss, "partition": {"scheme": "random"}, **more}


def plan_of(name: str, task: Section | None = None, **sections: Section) -> Plan:
    """Return a plan on the table that trains for a few rounds in float64."""
    usual = {"rounds": 4, "precision": "fp64", "threshold_init": "quantile"}
    training = {**usual, **sections.pop("training", {})}
    given = task_of(name, **{"standardize": "secure", "test_fraction": 0.25, **(task or {})})
    return parsed(NAMES, task={"model": {"name": "linear"}, **given}, training=training, **sections)
