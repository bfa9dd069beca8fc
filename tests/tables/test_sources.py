"""Every row of the table of sources has a module that reads it, and a new source needs nothing beyond both."""

import importlib
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest
from pydantic import Field

from fedfair.plan.data_section import DataSection
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.fields import Text
from fedfair.plan.schema import Plan
from fedfair.plan.sources import SOURCES, SourceSection
from fedfair.plan.task import TaskSection
from fedfair.report.plan_keys import page
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.source import load_federation
from fedfair.tables.source_modules import DataPaths, FileRecords, SourceModule, declared_schema
from tests import plans

SECTIONS = [field.annotation for kind in SOURCES.values() for field in kind.model_fields.values()]
READERS = {"built_in", "module", *(str(getattr(section, "reader", None)) for section in SECTIONS)}


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_source_module_offers_what_every_source_offers(name: str) -> None:
    module = importlib.import_module(f"fedfair.tables.sources.{name}")
    for wanted in (SourceModule.planned_schema, SourceModule.read):
        names = [*inspect.signature(wanted).parameters][1:]
        assert [*inspect.signature(getattr(module, wanted.__name__)).parameters] == names


def test_every_source_is_in_the_table_and_in_the_reference() -> None:
    folder = Path(str(importlib.import_module("fedfair.tables.sources").__file__)).parent
    assert {file.stem for file in folder.glob("*.py")} - {"__init__"} == READERS
    whole = page()
    assert all(f"## task.data: {{{key}: ...}}" in whole for key in SOURCES)


class LinesData(DataSection):
    """Records on lines of JSON."""

    reader: ClassVar[str] = "lines"
    leaves_gaps: ClassVar[bool] = True
    train: Text | None = Field(default=None, description="file, for a simulation")
    label: Text = Field(description="key to predict")
    collaborator: Text | None = Field(default=None, description="key of the owner")


class LinesSource(SourceSection):
    """`{lines: {...}}`."""

    lines: LinesData = Field(description="lines")


def planned_schema(stated: LinesData, task: TaskSection) -> FeatureSchema:
    assert stated.label == "died"
    return FeatureSchema((1,), task.classes or 2, (0,), ("age",))


def read(stated: LinesData, task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    assert paths.train is not None
    rows = [json.loads(line) for line in paths.train.read_text().splitlines()]
    features = np.array([[np.nan if row["age"] is None else row["age"]] for row in rows], np.float64)
    kept = {name: np.array([row[name] for row in rows]) for name in extra}
    labels = np.array([row[stated.label] for row in rows], np.int64)
    return FileRecords(Splits(Dataset(features, labels, planned_schema(stated, task), kept)))


def test_a_new_source_needs_a_section_and_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("lines")
    vars(module).update(planned_schema=planned_schema, read=read)
    monkeypatch.setitem(sys.modules, "fedfair.tables.sources.lines", module)
    usual = plans.parsed(("a", "b"))
    data = LinesSource(lines=LinesData(train="all.jsonl", label="died", collaborator="site"))
    plan: Plan = usual.model_copy(update={"task": usual.task.model_copy(update={"data": data})})
    assert plan.task.owner_column == "site"
    assert plan.task.has_numeric_columns
    assert plan.task.missing_ranges == ()
    assert declared_schema(plan) == FeatureSchema((1,), 2, (0,), ("age",))
    rows = [
        {"age": age, "died": died, "site": site} for age, died in ((40, 0), (41, 1), (None, 1)) for site in "ab"
    ]
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sites = load_federation(plan, tmp_path)
    assert {name: own.train.features.tolist() for name, own in sites.items()} == {
        "a": [[40.0], [41.0], [40.5]],
        "b": [[40.0], [41.0], [40.5]],
    }
