"""In how many threads torch computes: one for small models, as stated, and afterwards as before."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedfair.run.progress import Progress
from fedfair.simulation.simulate import simulate
from fedfair.training.device import SMALL_MODEL, set_threads, threads_for
from tests.plans import parsed


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("stated", "parameters", "expected"),
    [(None, SMALL_MODEL, 1), (None, SMALL_MODEL + 1, 2), (3, SMALL_MODEL, 3), (1, SMALL_MODEL + 1, 1)],
)
def test_a_small_model_takes_one_thread_unless_a_site_states_more(
    stated: int | None, parameters: int, expected: int
) -> None:
    set_threads(stated, parameters)
    assert torch.get_num_threads() == expected


def test_what_was_set_before_returns() -> None:
    with threads_for(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("hidden", "expected"), [(8, 1), (1024, 2)])
def test_a_simulation_computes_as_its_model_wants(hidden: int, expected: int) -> None:
    seen = set()

    def on_progress(_progress: Progress) -> None:
        seen.add(torch.get_num_threads())

    plan = parsed(
        task={"model": {"name": "mlp", "hidden": [hidden]}, "partition": {"scheme": "random"}},
        training={"rounds": 1},
    )
    simulate(plan, Path(), on_progress=on_progress)
    assert seen == {expected}
    assert torch.get_num_threads() == 2
