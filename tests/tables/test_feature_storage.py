"""Features in files: found again as they were written, nowhere seen, and no bit of a result moved by them."""

import os
import signal
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.feature_moments import column_sums
from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import CROSS_ENTROPY
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig
from fedfair.simulation.simulate import simulate_sites
from fedfair.store.mapped_array import mapping_of
from fedfair.tables import feature_storage as module
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.feature_storage import (
    FeatureStorage,
    RecordStore,
    blocks_of,
    changed,
    column_of,
    empty_beside,
    joined,
    row_blocks,
    simulation_storage,
    storage_of,
    taken,
)
from fedfair.tables.source import load_federation, read_site_records
from fedfair.tables.source_modules import DataPaths, read_files
from fedfair.training.statistics import standardisation_header
from tests import plans
from tests.full_disk import full_beyond

NAMES = ("clinic-a", "clinic-b", "clinic-c")
DRAWS = np.random.default_rng(0)
FEATURES = DRAWS.lognormal(size=(700, 5))
MAPPED = 0
"""No byte fits into memory."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let some hundred records be several blocks."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 12)


def mapped(features: np.ndarray, folder: Path) -> np.ndarray:
    return FeatureStorage(folder, MAPPED).kept(features)


def test_an_array_in_somebodys_own_file_is_read_block_by_block(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", FEATURES)
    own = np.asarray(np.load(tmp_path / "own.npy", mmap_mode="r"))
    assert storage_of(own) is None
    assert len(list(blocks_of(own))) > 3
    held = mapped(own, tmp_path / "room")
    assert np.array_equal(held, FEATURES)
    changed_own = np.asarray(np.load(tmp_path / "own.npy", mmap_mode="c"))
    changed_own[:] = 7.0
    module.forget(changed_own)
    assert (changed_own == 7.0).all()


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, numpy; from pathlib import Path\n"
        "from fedfair.tables.feature_storage import FeatureStorage, RecordStore\n"
        "held = FeatureStorage(Path(sys.argv[1]), 0).kept(numpy.ones((200000, 20)))\n"
        "store = RecordStore(FeatureStorage(Path(sys.argv[1]), 0)); store.add(numpy.ones((9, 3)))\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert list(tmp_path.iterdir()) == []


def test_what_is_made_of_records_in_a_file_is_in_the_same_room_and_equal(tmp_path: Path) -> None:
    held = mapped(FEATURES, tmp_path)
    assert len(list(row_blocks(held))) > 3
    chosen = DRAWS.permutation(700)[:333]
    for found, expected in (
        (taken(held, chosen), FEATURES[chosen]),
        (taken(held, FEATURES[:, 0] > 1), FEATURES[FEATURES[:, 0] > 1]),
        (changed(held, lambda block: block * 3.0), FEATURES * 3.0),
        (joined([held[:10], FEATURES[10:400], held[400:]]), FEATURES),
    ):
        assert storage_of(found) is storage_of(held)
        assert np.array_equal(found, expected)
    assert np.array_equal(np.concatenate(list(blocks_of(held))), FEATURES)
    assert np.array_equal(column_of(held, 3), FEATURES[:, 3])
    assert storage_of(empty_beside((0, 5), np.float32, held)) is None
    assert storage_of(joined([FEATURES, FEATURES])) is None
    assert np.array_equal(held, FEATURES)


@settings(max_examples=15)
@given(st.data(), st.integers(1, 3), st.integers(1, 700))
def test_records_in_a_file_come_in_any_order_and_repeatedly(data: st.DataObject, blocks: int, count: int) -> None:
    chosen = np.array(data.draw(st.lists(st.integers(-count, count - 1), max_size=900)), np.int64)
    features = FEATURES[:count]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCKS_AT_ONCE", blocks)
        found = taken(mapped(features, Path(folder)), chosen)
        assert np.array_equal(found, features[chosen])
        with pytest.raises(IndexError):
            taken(mapped(features, Path(folder)), np.array([count, 0]))


def test_files_of_records_are_nameless_shared_and_only_made_for_many(tmp_path: Path) -> None:
    storage = FeatureStorage(tmp_path, 2 * FEATURES.nbytes)
    assert storage.kept(FEATURES) is FEATURES
    assert storage_of(storage.kept(FEATURES.copy())) is None
    third = storage.kept(FEATURES)
    assert storage_of(third) is storage
    assert storage.kept(third) is third
    assert np.array_equal(third, FEATURES)
    assert storage_of(third[3:9].reshape(-1)) is storage
    held = mapped(FEATURES, tmp_path)
    part = held[5:7]
    assert list(tmp_path.iterdir()) == []
    mapping = weakref.ref(mapping_of(held))  # type: ignore[arg-type]
    del held
    assert mapping() is not None
    assert np.array_equal(part, FEATURES[5:7])
    del part
    assert mapping() is None
    storage = FeatureStorage(tmp_path, MAPPED)
    parts = [storage.kept(np.full((3, place + 1), float(place))) for place in range(500)]
    assert len({id(mapping_of(part)) for part in parts}) == 1
    assert all((part == place).all() for place, part in enumerate(parts))
    large = storage.kept(np.ones((module.CHUNK_BYTES // 4 // 8, 1)))
    assert mapping_of(large) is not mapping_of(parts[0])


@pytest.mark.parametrize("most", [0, 1000, 1 << 30])
def test_blocks_of_a_number_that_nobody_knows_become_one_array(tmp_path: Path, most: int) -> None:
    store = RecordStore(FeatureStorage(tmp_path, most), np.float32)
    for start in range(0, 700, 90):
        store.add(FEATURES[start : start + 90])
    held = store.features()
    assert np.array_equal(held, FEATURES.astype(np.float32))
    assert (storage_of(held) is None) == (most > held.nbytes)


def test_a_full_disk_and_a_lost_folder_are_one_clear_fault(tmp_path: Path) -> None:
    large = np.zeros((60_000, 50))
    store = RecordStore(FeatureStorage(tmp_path, MAPPED))
    with full_beyond(1 << 20):
        with pytest.raises(
            DataError, match=rf"24\.0 MB of records cannot be held in {tmp_path}: File too large"
        ) as fault:
            mapped(large, tmp_path)
        assert "free so much space there" in fault.value.remedy
        with pytest.raises(DataError, match=r"24\.0 MB of records cannot be held"):
            store.add(large)
    assert list(tmp_path.iterdir()) == []
    storage = FeatureStorage(tmp_path / "state", MAPPED)
    held = storage.kept(FEATURES)
    (tmp_path / "state").rmdir()
    assert np.array_equal(taken(held, np.arange(700)), FEATURES)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"67\.1 MB of records cannot be held in .*file/state: Not a directory"):
        mapped(FEATURES, tmp_path / "file" / "state")


def test_a_disk_that_reserves_nothing_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    assert np.array_equal(mapped(FEATURES, tmp_path), FEATURES)


def test_a_simulation_holds_its_records_in_its_own_folder(tmp_path: Path) -> None:
    assert simulation_storage(tmp_path)._folder == tmp_path
    assert simulation_storage(tmp_path / "nowhere")._folder.is_dir()


def test_the_sums_of_columns_are_those_of_the_table_whatever_holds_it(tmp_path: Path) -> None:
    features = DRAWS.lognormal(size=(30_000, 7))
    features[DRAWS.random(features.shape) < 0.1] = np.nan
    labels, numeric = np.zeros(len(features), np.int64), (0, 2, 3, 6)
    schema = FeatureSchema((7,), 2, numeric, units=(1.0, 2.0, 0.5, 8.0))
    together = features[:, list(numeric)]
    known = ~np.isnan(together)
    present = np.where(known, together, 0.0) / np.array(schema.units)
    expected = [known.sum(axis=0), present.sum(axis=0), np.einsum("ij,ij->j", present, present)]
    for held in (features, mapped(features, tmp_path)):
        found = standardisation_header(Dataset(held, labels, schema), CROSS_ENTROPY)
        assert found[0] == len(features)
        assert found[1:].tolist() == np.concatenate(expected).tolist()
    assert column_sums(together.T, 4, schema.units).tolist() == found.tolist()


TABLE = "age,bmi,sex,died,clinic\n" + "".join(
    f"{30 + i % 50 + i / 700},{'' if i % 7 == 0 else 20 + i / 10},{'FM'[i % 2]},{int(i % 50 > 20 + i % 9)},"
    f"clinic-{'abc'[i % 3]}\n"
    for i in range(900)
)
CSV = {"label": "died", "numeric": ["age", "bmi"], "categorical": {"sex": ["F", "M"]}, "missing": "mean"}
HELD_OUT = {"test_fraction": 0.2, "validation_fraction": 0.1}
RANGES = {"ranges": {"age": [0, 120], "bmi": [5, 200]}}
PLANS: dict[str, dict[str, plans.Section]] = {
    "secure": {"task": {"standardize": "secure", **HELD_OUT}},
    "own means": {"task": {"standardize": "none", **HELD_OUT}},
    "ranges": {"task": {"standardize": "ranges", **HELD_OUT}, "csv": RANGES},
    "nothing held out, fp64": {"task": {"standardize": "secure"}, "training": {"precision": "fp64"}},
    "epochs": {"task": {"standardize": "secure", **HELD_OUT}, "training": {"local_epochs": 1, "local_steps": 1}},
    "pooled": {"task": {"standardize": "secure"}, "training": {"algorithm": "dro", "local_steps": 1}},
    "groups": {
        "task": {"standardize": "secure"},
        "training": {"algorithm": "fedminmax", "options": {"group_column": "sex"}, "local_steps": 1},
    },
    "private records": {
        "task": {"standardize": "secure", **HELD_OUT},
        "csv": RANGES,
        "privacy": {"sample_level": {"noise_multiplier": 0.1}},
    },
}


def table_plan(case: str) -> Plan:
    sections = {**PLANS[case]}
    spec = {**CSV, **sections.pop("csv", {}), "train": "all.csv", "collaborator": "clinic"}
    task = {**sections.pop("task"), "data": {"csv": spec}}
    training = {"rounds": 1, "local_steps": 2, "batch_size": 8, **sections.pop("training", {})}
    return plans.parsed(NAMES, task=task, training=training, objective={"tradeoff": 0.5}, **sections)


@pytest.mark.parametrize("case", PLANS)
def test_no_bit_of_a_simulation_depends_on_where_its_records_are(tmp_path: Path, case: str) -> None:
    (tmp_path / "all.csv").write_text(TABLE)
    stated = table_plan(case)
    in_memory = load_federation(stated, tmp_path)
    in_files = load_federation(stated, tmp_path, FeatureStorage(tmp_path / "room", MAPPED))
    assert all(storage_of(site.train.features) is None for site in in_memory.values())
    assert all(storage_of(site.train.features) is not None for site in in_files.values())
    assert all(same(in_files[name], in_memory[name]) for name in in_memory)
    for engine in ("loop", "vectorised") if case in {"secure", "epochs"} else ("loop",):
        found, expected = (
            simulate_sites(stated, sites, tmp_path, engine=engine)  # type: ignore[arg-type]
            for sites in (in_files, in_memory)
        )
        assert found.model.vector.any()
        assert found.model.vector.tobytes() == expected.model.vector.tobytes()
        assert found.evaluation == expected.evaluation
        assert (found.scaling is None) == (expected.scaling is None)
        if found.scaling is not None and expected.scaling is not None:
            assert found.scaling.mean.tolist() == expected.scaling.mean.tolist()
            assert found.scaling.scale.tolist() == expected.scaling.scale.tolist()
    assert list((tmp_path / "room").iterdir()) == []


def same(found: Splits, expected: Splits) -> bool:
    parts = ("train", "validation", "test")
    pairs = [(getattr(found, part), getattr(expected, part)) for part in parts]
    return all(
        (one is None) == (other is None)
        and (one is None or np.array_equal(one.features, other.features, equal_nan=True))
        for one, other in pairs
    )


@pytest.mark.parametrize("case", ["secure", "own means", "ranges", "private records"])
def test_a_site_reads_the_same_records_and_the_same_profile_into_files(tmp_path: Path, case: str) -> None:
    (tmp_path / "all.csv").write_text(TABLE)
    config = SiteConfig.model_validate({"collaborator": "clinic-a", "data": {"train": "all.csv"}})
    found, expected = (
        read_site_records(table_plan(case), config, ParticipantId("clinic-a"), tmp_path, storage=storage)
        for storage in (FeatureStorage(tmp_path / "state", MAPPED), None)
    )
    assert storage_of(found.splits.train.features) is not None
    assert same(found.splits, expected.splits)
    assert found.profile == expected.profile


def test_faults_and_images_of_files_are_those_of_memory(tmp_path: Path) -> None:
    features = FEATURES.copy()
    features[611, 2] = np.inf
    with pytest.raises(DataError, match="record 611 is infinite"):
        Dataset(mapped(features, tmp_path), np.zeros(700, np.int64), FeatureSchema((5,), 2))
    source = "import numpy as np\ndef load(root):\n    x = np.ones((700, 5))\n    x[650, 1] = x[651, 4] = np.nan\n"
    (tmp_path / "open_values.py").write_text(source + "    return x, np.arange(700) % 2\n")
    stated = plans.parsed(NAMES[:1], task={"data": "open_values:load", "standardize": "none"})
    with pytest.raises(DataError, match="record 650 is missing, and 1 more values are missing"):
        load_federation(stated, tmp_path, FeatureStorage(tmp_path, MAPPED))
    from PIL import Image

    for place in range(4):
        Image.new("RGB", (10, 12), (place, 2, 3)).save(tmp_path / f"{place}.png")
    rows = "".join(f"{place}.png,{place % 2}\n" for place in range(4))
    (tmp_path / "attributes.csv").write_text(f"file,young\n{rows}")
    data = {"images": {"label": "young", "height": 6, "width": 4}}
    task = plans.parsed(NAMES[:1], task={"data": data, "standardize": "none"}).task
    paths = DataPaths(tmp_path, tmp_path, None, None, FeatureStorage(tmp_path / "state", MAPPED))
    held = read_files(task, paths, ()).splits.train.features
    assert storage_of(held) is not None
    assert held[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
