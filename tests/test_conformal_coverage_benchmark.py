"""The script `benchmarks/conformal_coverage.py`: its adversary by hand, and its promise on fewer redraws."""

import importlib
from types import ModuleType

import numpy as np
import pytest

from fedfair.conformal.promise import Promise
from tests.conftest import REPOSITORY


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # Scripts import their neighbours by their bare names.
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module("conformal_coverage")


def test_every_population_keeps_its_promise(script: ModuleType) -> None:
    generator, promise = np.random.default_rng(1), Promise(0.3, 0.1, 0.95)
    for name, places in script.populations(4000, generator).items():
        found = script.coverage(places, promise, 400, 300, generator)
        assert found["missed_in_the_worst_group"] <= 0.1 + 4 * found["standard_error"], name
        assert found["redraws_beyond_the_bound"] <= found["most_by_chance"], name
        if "unbinned" in name:
            # .03 * 401 = 12.03: as good as nothing is lost by rounding.
            assert found["missed_in_the_worst_group"] >= 0.1 - 4 * found["standard_error"], name


def test_the_places_of_people_are_those_that_an_evaluation_counts(script: ModuleType) -> None:
    for classes in script.CLASSES:
        scores, places = script.scored_people(classes, 500, np.random.default_rng(classes))
        edges = script.score_edges(script.score_bins(1 if classes == 2 else classes))
        assert ((edges[places] <= scores + 1e-15) & (scores <= edges[places + 1] + 1e-15)).all()
    fits, places = script.measured_people(500, np.random.default_rng(3))
    # The worst bin is that of the losses beyond the range.
    assert ((fits <= -25.0) == (places == 0)).all()
    inside = places > 0
    # Rounded to an eighth of a bin before.
    assert (np.abs(-fits[inside] / 25.0 * 256 - (256 - places[inside] + 0.5)) <= 0.5 + 1 / 16).all()
