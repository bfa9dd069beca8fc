"""A run that takes the references of an earlier one: its model, who judges which record, and what is refused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fedfair
from fedfair.api.simulation import SimulatedFederation
from fedfair.errors import DataError, FedfairError, PlanError
from fedfair.plan.derived import sums_columns
from fedfair.plan.description import summary
from fedfair.plan.schedule import schedule_of
from fedfair.policy.disclosures import of_run
from fedfair.run.progress import Progress
from fedfair.run.reference_file import read_references, write_references
from fedfair.statistics.statistic import When
from fedfair.statistics.table import Purpose
from fedfair.training import reference_training
from fedfair.training.assembly import flat_model
from fedfair.training.binding import bound
from fedfair.training.client import TrainingClient
from fedfair.training.device import SplitRecords
from fedfair.training.reference_training import ReferenceSetting
from tests.plans import NAMES, parsed

Arrays = dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]
COUNTS = (31, 44, 26)
REFERENCE = {"hidden": [5], "rounds": 4, "local_steps": 20}
TRAINING = {"rounds": 4, "local_steps": 2, "batch_size": 8, "output": "last", "seed": 3}
SECTIONS: Mapping[str, Mapping[str, object]] = {
    "task": {"standardize": "secure"},
    "training": TRAINING,
    "evaluation": {"every": 2, "min_group": 1},
}


def records() -> Arrays:
    source = np.random.default_rng(4)
    drawn = {name: source.normal(size=(count, 3)) for name, count in zip(NAMES, COUNTS, strict=True)}
    return {
        name: (each, (each[:, 0] + source.normal(size=len(each)) > 0).astype(int)) for name, each in drawn.items()
    }


@dataclass(frozen=True)
class Earlier:
    """A run that trained its references, and the file of them."""

    run: SimulatedFederation
    file: Path
    digest: str


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    run = fedfair.simulate(records(), objective={"measure": "excess", "reference": REFERENCE}, **SECTIONS)
    file = tmp_path_factory.mktemp("earlier") / "references.safetensors"
    run.save_references(file)
    told = run.result.references
    assert told is not None
    assert told.digest == read_references(file).digest
    assert told.best_after > 0
    return Earlier(run, file, str(told.digest))


def again(
    earlier: Earlier,
    sites: Arrays | None = None,
    file: Path | None = None,
    seen: Callable[[Progress], None] | None = None,
    **changes: Mapping[str, object],
) -> SimulatedFederation:
    """Run the same plan by the references of the earlier run, but for some keys."""
    objective = {"measure": "excess", "reference": {"run": earlier.digest, "hidden": [5]}}
    stated = {"objective": objective, **SECTIONS}
    given = {name: {**stated.get(name, {}), **changes.get(name, {})} for name in {**stated, **changes}}
    place = earlier.file if file is None else file
    return fedfair.simulate(records() if sites is None else sites, references=place, on_progress=seen, **given)


def test_a_run_by_given_references_is_the_run_that_trained_them_bit_for_bit(earlier: Earlier) -> None:
    made: list[Progress] = []
    found = again(earlier, seen=made.append)
    before = earlier.run
    assert found._simulated.model.vector.tobytes() == before._simulated.model.vector.tobytes()
    assert found._simulated.model.threshold == before._simulated.model.threshold
    assert [each.model_dump() for each in found.result.history] == [
        each.model_dump() for each in before.result.history
    ]
    assert found.result.references == before.result.references
    assert {one.purpose for one in made} == {Purpose.EVALUATION, Purpose.TRAINING}
    found.save_references(earlier.file.with_name("again.safetensors"))
    assert earlier.file.with_name("again.safetensors").read_bytes() == earlier.file.read_bytes()


def test_no_record_is_judged_by_a_reference_that_a_step_was_made_on_it_with(
    earlier: Earlier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow way: note every record of every step of the earlier run, by the reference that it moved."""
    seen: dict[tuple[int, int], set[int]] = {}
    calls: dict[int, int] = {}
    real = reference_training._change

    def noted(
        setting: ReferenceSetting, start: torch.Tensor, own: SplitRecords, others: torch.Tensor, seed: int
    ) -> NDArray[np.float64]:
        fold = calls[len(own)] = calls.get(len(own), -1) + 1
        seen.setdefault((len(own), fold % setting.shape.folds), set()).update(others.tolist())
        return real(setting, start, own, others, seed)

    monkeypatch.setattr(reference_training, "_change", noted)
    before = fedfair.simulate(
        records(), objective={"measure": "excess", "reference": REFERENCE}, engine="loop", **SECTIONS
    )
    before.save_references(earlier.file.with_name("watched.safetensors"))
    monkeypatch.undo()
    assert len(seen) == 2 * len(COUNTS)
    federation = again(earlier, file=earlier.file.with_name("watched.safetensors"))._federation
    plan, schema = federation.plan, federation.schema
    model = flat_model(plan, schema, torch.device("cpu"), Path())
    carried = bound(plan, schema, Path(), references=earlier.file).carried
    assert carried.references is not None
    assert carried.scaling is not None
    for name, splits in federation.sites.items():
        client = TrainingClient(plan, name, splits, model)
        client.apply_scaling(carried.scaling)
        client.apply_references(carried.references)
        setting, own = client.records.reference_setting, client.records.placed["train"]
        answers = client.records.trained_on.labels
        best = setting.by_fold(carried.references.best, client.records.model.flat)
        said = [setting.answered(flat, own.features, carried.references.temperature) for flat in best]
        for place in range(len(splits.train)):
            judges = [fold for fold, each in enumerate(said) if torch.equal(each[place], answers[place].cpu())]
            assert len(judges) == 1
            assert place not in seen[len(splits.train), judges[0]]


def test_no_sum_of_references_or_columns_is_planned_told_or_revealed(earlier: Earlier) -> None:
    reference = {"run": earlier.digest, "hidden": [5]}
    plan = parsed(NAMES, objective={"measure": "excess", "reference": reference}, task={"standardize": "secure"})
    own = parsed(NAMES, objective={"measure": "excess"}, task={"standardize": "secure"})
    assert schedule_of(own).at(When.REFERENCE, When.SCALING)
    assert not schedule_of(plan).at(When.REFERENCE, When.SCALING)
    assert not sums_columns(plan)
    assert not {"reference-sums", "feature-sums"} & set(of_run(plan))
    assert {"reference-sums", "feature-sums"} <= set(of_run(own))
    words = dict(summary(plan))
    assert f"those of an earlier run, whose result names them {earlier.digest}" in words["minimises"]
    assert "reference models" not in words["leaves a site"]
    assert "scaled as the references were trained" in words["learns"]


def other_records(site: int, change: Callable[[NDArray[np.float64], NDArray[np.int64]], object]) -> Arrays:
    sites = records()
    features, labels = sites[NAMES[site]]
    changed = change(features.copy(), labels.copy())
    sites[NAMES[site]] = changed  # type: ignore[assignment]
    return sites


def flipped(features: NDArray[np.float64], labels: NDArray[np.int64]) -> object:
    labels[7] = 1 - labels[7]
    return features, labels


def swapped(features: NDArray[np.float64], labels: NDArray[np.int64]) -> object:
    order = [1, 0, *range(2, len(labels))]
    return features[order], labels[order]


OTHERS: Mapping[str, Callable[[], Arrays]] = {
    "one label": lambda: other_records(1, flipped),
    "the order": lambda: other_records(0, swapped),
    "one fewer": lambda: other_records(2, lambda features, labels: (features[1:], labels[1:])),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_training_records_are_refused(earlier: Earlier, kind: str) -> None:
    with pytest.raises(PlanError, match=r"training records of .* are others, or in another order") as refused:
        again(earlier, OTHERS[kind]())
    assert "remove objective.reference.run" in refused.value.remedy


def test_a_new_site_is_judged_by_any(earlier: Earlier) -> None:
    sites = records()
    new = {**sites, "newcomer": (sites[NAMES[0]][0] + 0.5, sites[NAMES[0]][1])}
    told = again(earlier, new).result.references
    assert told is not None
    assert told.digest == earlier.digest


REFUSED: Mapping[str, tuple[Mapping[str, Mapping[str, object]], str]] = {
    "seed": ({"training": {"seed": 4}}, r"by the seed 3, and training\.seed is 4"),
    "hidden": ({"objective": {"reference": {"hidden": [6]}}}, r"hidden layers of \[5\], and objective.* is \[6\]"),
    "folds": ({"objective": {"reference": {"hidden": [5], "folds": 3}}}, r"folds is 2, and objective.* is 3"),
    "loss": ({"task": {"loss": "binary"}}, r"of the loss cross_entropy, and task\.loss is binary"),
    "scaling": ({"task": {"standardize": "none"}}, r"standardised columns: 3, and the plan standardises 0"),
    "rounds": ({"objective": {"reference": {"rounds": 9}}}, "is 9 beside run, whose references are trained"),
    "patience": ({"objective": {"reference": {"patience": 9}}}, "is 9 beside run"),
    "local_steps": ({"objective": {"reference": {"local_steps": 9}}}, "is 9 beside run"),
    "batch_size": ({"objective": {"reference": {"batch_size": 9}}}, "is 9 beside run"),
    "learning_rate": ({"objective": {"reference": {"learning_rate": 0.5}}}, r"is 0\.5 beside run"),
    "digest": ({"objective": {"reference": {"run": "sha256:" + "0" * 64}}}, "the plan names sha256:0000"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_references_that_the_plan_could_not_have_trained_are_refused(earlier: Earlier, kind: str) -> None:
    changes, words = REFUSED[kind]
    given = {name: dict(section) for name, section in changes.items()}
    if "reference" in given.get("objective", {}):
        given["objective"]["reference"] = {"run": earlier.digest, **given["objective"]["reference"]}  # type: ignore[dict-item]
    with pytest.raises(PlanError, match=words):
        again(earlier, **given)


def test_other_columns_are_refused_and_both_shapes_are_named(earlier: Earlier) -> None:
    wide = {
        name: (np.hstack([features, features[:, :1]]), labels) for name, (features, labels) in records().items()
    }
    with pytest.raises(PlanError, match=r"\(features, outputs\) \(3, 2\), and the plan's records have \(4, 2\)"):
        again(earlier, wide)


def test_a_missing_a_damaged_and_another_file_are_refused(earlier: Earlier, tmp_path: Path) -> None:
    objective = {"measure": "excess", "reference": {"run": earlier.digest, "hidden": [5]}}
    with pytest.raises(PlanError, match="is missing: the plan takes the references sha256:") as missing:
        fedfair.simulate(records(), objective=objective, **SECTIONS)
    assert "simulate(..., references=FILE)" in missing.value.remedy
    damaged = tmp_path / "damaged.safetensors"
    raw = bytearray(earlier.file.read_bytes())
    raw[-3] ^= 1
    damaged.write_bytes(raw)
    with pytest.raises(DataError, match="is not a model that can be read"):
        again(earlier, file=damaged)
    model = tmp_path / "model.safetensors"
    earlier.run.save(model)
    with pytest.raises(FedfairError, match="fedfair/references/1"):
        again(earlier, file=model)


@pytest.mark.parametrize("field", ["seed", "loss", "sums", "best", "temperature", "scaling"])
def test_the_digest_binds_all_that_judges(earlier: Earlier, tmp_path: Path, field: str) -> None:
    kept = read_references(earlier.file)
    held = kept.references
    assert kept.scaling is not None
    other = {
        "seed": replace(kept, seed=4),
        "loss": replace(kept, loss="binary"),
        "sums": replace(kept, references=replace(held, sums=held.sums + 1)),
        "best": replace(kept, references=replace(held, best=np.nextafter(held.best, 9.0))),
        "temperature": replace(kept, references=replace(held, temperature=(held.temperature + 1) % 7)),
        "scaling": replace(kept, scaling=replace(kept.scaling, mean=np.nextafter(kept.scaling.mean, 9.0))),
    }[field]
    write_references(tmp_path / "other.safetensors", other)
    with pytest.raises(PlanError, match=r"holds the references sha256:.*, the plan names sha256:"):
        again(earlier, file=tmp_path / "other.safetensors")
