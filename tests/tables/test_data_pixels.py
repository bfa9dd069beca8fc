from pathlib import Path

import numpy as np
import pytest
import torch

import fedfair
from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.simulation.linear_family import family_facts
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from fedfair.tables.dataset import Dataset, Splits, pooled_features
from fedfair.tables.holdout import hold_out
from fedfair.tables.in_memory import read_pair
from fedfair.tables.pixels import feature_values
from fedfair.tables.sources.module import load_module
from fedfair.training.binding import initial_model
from fedfair.training.device import SplitRecords
from tests import plans

SCHEMA = FeatureSchema((1, 6, 5), 2)
CPU = torch.device("cpu")
NAMES = ("clinic-a", "clinic-b")
NOISE = {"noise_multiplier": 0.1}
"""So little that what it costs is told by the quick bound."""


def numbers(pixels: np.ndarray) -> np.ndarray:
    """Return what images were before they were held as bytes: read into float32, then divided."""
    found = np.empty(pixels.shape, np.float32)
    found[:] = pixels
    found /= 255
    return found


def images(count: int, seed: int = 0) -> Dataset:
    draws = np.random.default_rng(seed)
    pixels = draws.integers(0, 256, (count, 1, 6, 5), np.uint8)
    return Dataset(pixels, (pixels.mean(axis=(1, 2, 3)) > 127).astype(np.int64), SCHEMA)


def as_numbers(held: Dataset) -> Dataset:
    return Dataset(numbers(held.features), held.labels, SCHEMA)


def split(held: Dataset) -> Splits:
    return Splits(held.take(np.arange(30)), held.take(np.arange(30, 36)), held.take(np.arange(36, 50)))


def plan(model: object = "linear", **sections: plans.Section) -> Plan:
    named = model if isinstance(model, str) and ":" in model else {"name": model}
    if model == "mlp":
        named = {"name": "mlp", "hidden": [7]}
    training = {"rounds": 3, "local_steps": 2, "batch_size": 8, **sections.pop("training", {})}
    objective = {"tradeoff": 0.5}
    task = {"model": named, "standardize": "none"}
    return plans.parsed(NAMES, task=task, training=training, objective=objective, **sections)


def played(stated: Plan, engine: str, *, bytes_held: bool) -> SimulationOutcome:
    held = {ParticipantId(name): images(50, place) for place, name in enumerate(NAMES)}
    sites = {name: split(own if bytes_held else as_numbers(own)) for name, own in held.items()}
    return simulate_sites(stated, sites, Path(), engine=engine)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_byte_becomes_the_number_that_it_was_bit_for_bit(dtype: torch.dtype) -> None:
    every = np.arange(256, dtype=np.uint8).reshape(256, 1, 1)
    expected = torch.as_tensor(numbers(every), dtype=dtype)
    assert feature_values(every).tobytes() == numbers(every).tobytes()
    held = SplitRecords.place(every, np.zeros(256, np.int64), dtype, CPU)
    assert held.features.nbytes == 256
    backwards = torch.arange(255, -1, -1)
    for found, true in (
        (held.everything()[0], expected),
        (held.take(backwards)[0], expected[backwards]),
        (torch.cat([features for features, _ in held.in_order()]), expected),
    ):
        assert found.dtype == dtype
        assert torch.equal(found, true)


@pytest.mark.parametrize(
    ("model", "engine", "sections"),
    [
        ("linear", "loop", {}), ("linear", "vectorised", {}), ("mlp", "loop", {"training": {"precision": "fp64"}}),
        ("mlp", "vectorised", {"training": {"local_epochs": 1, "local_steps": 1}}),
        ("mlp", "loop", {"training": {"precision": "bf16", "batch_size": "full"}}),
        ("linear", "loop", {"training": {"algorithm": "dro", "local_steps": 1, "batch_size": "full"}}),
        ("linear", "vectorised", {"training": {"algorithm": "dro", "local_steps": 1, "batch_size": "full"}}),
        ("linear", "loop", {"privacy": {"sample_level": NOISE}}),
        pytest.param("linear", "vectorised", {"privacy": {"sample_level": NOISE}}, marks=pytest.mark.slow),
        pytest.param("resnet18", "loop", {"training": {"rounds": 1}}, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_training_on_bytes_or_numbers_is_one(model: str, engine: str, sections: dict[str, plans.Section]) -> None:
    stated = plan(model, **sections)
    found, expected = (played(stated, engine, bytes_held=held) for held in (True, False))
    start, _ = initial_model(stated, SCHEMA, Path())[::-1]
    assert (expected.model.vector != start).any()
    assert found.model.vector.tobytes() == expected.model.vector.tobytes()
    assert found.model.threshold == expected.model.threshold
    for name, losses in expected.losses.items():
        for part, own in losses.items():
            assert np.array_equal(found.losses[name][part].values, own.values)


def test_bytes_count_as_their_numbers_in_hold_outs_pools_and_critical_sizes() -> None:
    held = images(60)
    name = ParticipantId("clinic-a")
    found, expected = (hold_out(own, 0.3, 0.2, 7, name, by_record=True) for own in (held, as_numbers(held)))
    assert found.train.features.dtype == np.uint8
    assert np.array_equal(numbers(found.train.features), expected.train.features)
    held = images(5)
    assert pooled_features([held, held]).dtype == np.uint8
    mixed = pooled_features([held, as_numbers(held)])
    assert np.array_equal(mixed, np.concatenate([numbers(held.features)] * 2))
    sites = {ParticipantId("clinic-a"): Splits(held), ParticipantId("clinic-b"): Splits(as_numbers(held))}
    both = {name: Splits(as_numbers(held)) for name in sites}
    for engine in ("loop", "vectorised"):
        runs = [simulate_sites(plan(), given, Path(), engine=engine) for given in (sites, both)]  # type: ignore[arg-type]
        assert runs[0].model.vector.tobytes() == runs[1].model.vector.tobytes()
    held = images(40)
    found, expected = (
        family_facts(plan(), {ParticipantId("clinic-a"): Splits(own)}) for own in (held, as_numbers(held))
    )
    assert found == expected
    with pytest.raises(DataError, match="uint8 are the pixels of images"):
        Dataset(np.zeros((2, 2), np.uint8), np.zeros(2, np.int64), FeatureSchema((2,), 2, (0, 1)))


def test_arrays_of_bytes_are_images_where_a_record_is_one_and_numbers_in_a_table(tmp_path: Path) -> None:
    pixels = images(4).features
    assert np.shares_memory(read_pair("clinic-a", (pixels, np.array([0, 1, 0, 1]))).features, pixels)
    table = read_pair("clinic-a", (pixels.reshape(4, -1), np.array([0, 1, 0, 1]))).features
    assert table.dtype == np.float64
    assert table.max() > 1
    np.save(tmp_path / "pixels.npy", pixels)
    (tmp_path / "byte_images.py").write_text(
        "import numpy as np\ndef load(root):\n"
        "    pixels = np.load(root / 'pixels.npy', mmap_mode='r')\n    return pixels, np.array([0, 1, 0, 1])\n"
    )
    train = load_module("byte_images:load", tmp_path, tmp_path, 2).train
    assert train.features.dtype == np.uint8
    placed = SplitRecords.place(train.features, train.labels, torch.float32, CPU)
    assert torch.equal(placed.everything()[0], torch.from_numpy(numbers(pixels)))


def test_a_program_that_gives_images_as_bytes_trains_and_predicts_as_with_their_numbers() -> None:
    def run(bytes_given: bool) -> tuple[fedfair.SimulatedFederation, np.ndarray]:
        held = {name: images(40, place) for place, name in enumerate(NAMES)}
        made = {name: (own.features if bytes_given else numbers(own.features)) for name, own in held.items()}
        sites = {name: (made[name], held[name].labels) for name in NAMES}
        # Pixels at random tell nothing of the label, so that no trained model need be the best.
        stated = {"training": {"rounds": 3, "output": "last"}, "objective": {"reference": {"rounds": 2}}}
        return fedfair.simulate(sites, **stated), made["clinic-a"]

    (found, pixels), (expected, values) = run(True), run(False)
    assert np.array_equal(found.model.module.vector(), expected.model.module.vector())
    assert np.array_equal(found.model.predict_proba(pixels), expected.model.predict_proba(values))
    labels = images(40).labels
    assert found.evaluate(pixels, labels) == expected.evaluate(values, labels)
