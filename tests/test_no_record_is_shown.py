"""No object shows a record, a label or a loss where it is printed: in a terminal, a log or a notebook."""

import dataclasses
import gc
import importlib
import pkgutil
import re
from collections.abc import Iterator

import numpy as np
import pytest

import fedfair
from fedfair.api.simulation import simulate
from fedfair.run.training_run import Progress

HOLDING_RECORDS = ("tables", "training", "simulation", "api", "prediction", "fairness")
"""Packages whose objects may hold records, or numbers of single records."""

ARRAY = re.compile(r"\b(NDArray|ndarray|Tensor|Values|Array|DataFrame|Series)\b")
MARK = 7357.0
"""Every feature lies between it and the next whole number, so that texts are searched for few numbers."""
MARKED = re.compile(r"7357\.[0-9]+")


def shown_arrays() -> Iterator[str]:
    """Yield each field of a dataclass of these packages that is an array and is printed with its object."""
    for package in HOLDING_RECORDS:
        found = importlib.import_module(f"fedfair.{package}")
        for place in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            module = importlib.import_module(place.name)
            for name, kind in vars(module).items():
                if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == place.name:
                    yield from (
                        f"{place.name}.{name}.{each.name}"
                        for each in dataclasses.fields(kind)
                        if each.repr and ARRAY.search(str(each.type)) and "Callable" not in str(each.type)
                    )


def test_no_array_is_printed_with_an_object_that_may_hold_records() -> None:
    assert list(shown_arrays()) == []


def sites() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(0)
    found = {}
    for name, records in (("clinic-a", 30), ("clinic-b", 25), ("clinic-c", 22)):
        features = MARK + draw.random((records, 3))
        found[name] = features, (features[:, 0] > MARK + 0.5).astype(int)
    return found


def shows_a_record(text: str) -> bool:
    """Return whether a text has the value of a record; a mean over records is none."""
    values = np.concatenate([features.ravel() for features, _ in sites().values()])
    return any(np.abs(values - float(found)).min() < 1e-7 for found in MARKED.findall(text))


def printed(package: str) -> dict[str, str]:
    """Return how the last of the living objects of each type of a package is printed, by the type."""
    last = {type(thing): thing for thing in gc.get_objects()}
    return {
        f"{kind.__module__}.{kind.__name__}": f"{thing!r} {thing}"
        for kind, thing in last.items()
        if isinstance(kind.__module__, str) and kind.__module__.partition(".")[0] == package
    }


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_no_living_object_of_a_simulation_prints_a_record(engine: str) -> None:
    found: dict[str, str] = {}

    def look(progress: Progress) -> None:
        if progress.round in {0, 2}:
            found.update(printed("fedfair"))

    held = sites()
    stated = {"training": {"rounds": 2}, "objective": {"reference": {"rounds": 2}}}
    outcome = simulate(held, **stated, engine=engine, on_progress=look)  # type: ignore[arg-type]
    found.update(printed("fedfair"))
    assert shows_a_record(repr(held))
    assert [name for name, text in found.items() if shows_a_record(text)] == []
    assert {"fedfair.tables.dataset.Dataset", "fedfair.api.simulation.SimulatedFederation"} <= found.keys()
    assert len(repr(outcome)) < 200
    fitted = fedfair.FairClassifier().fit(*held["clinic-a"])
    assert not shows_a_record(f"{fitted!r} {fitted.verdict_!r}")


def test_no_refusal_of_arrays_prints_a_record() -> None:
    held = sites()
    features, labels = held["clinic-b"]
    wrong: list[object] = [
        features,
        (features[:, :2], labels),
        (features, labels[:-1]),
        (features.astype(str), labels),
    ]
    for each in wrong:
        with pytest.raises(fedfair.FedfairError) as refused:
            simulate({**held, "clinic-b": each})  # type: ignore[dict-item]
        assert not shows_a_record(f"{refused.value} {refused.value!r}")
