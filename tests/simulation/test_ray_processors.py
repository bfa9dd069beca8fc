"""A Ray cluster that is full: a user who waits for it reads what for."""

from types import SimpleNamespace

import pytest

from fedfair.errors import PlanError
from fedfair.simulation.ray_cluster import processors


def cluster(there: int, free: float) -> SimpleNamespace:
    resources = {"CPU": float(there), "memory": 1.0}
    free_resources = {"CPU": free} if free else {}
    return SimpleNamespace(cluster_resources=lambda: resources, available_resources=lambda: free_resources)


@pytest.mark.parametrize(
    ("free", "asked", "workers", "missing"), [(0, None, 1, 1), (3, 5, 5, 2), (8, None, 8, 0), (8, 5, 5, 0)]
)
def test_what_is_waited_for_on_a_full_cluster_is_said_and_nothing_else_is(
    free: int, asked: int | None, workers: int, missing: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert processors(cluster(8, free), asked) == workers
    said = capsys.readouterr().err.splitlines()
    assert len(said) == bool(missing)
    for words in said:
        assert f"8 processors, and {free} of them are free: waiting for {missing} more" in words


def test_more_workers_than_the_cluster_has_are_refused_without_a_wait(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PlanError, match="fewer than --workers 9"):
        processors(cluster(8, 8), 9)
    assert capsys.readouterr().err == ""
