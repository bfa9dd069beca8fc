from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from fedfair.errors import DataError, PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig
from fedfair.tables.dataset import Splits
from fedfair.tables.source import load_federation, read_site_records
from fedfair.tables.source_modules import declared_schema
from fedfair.tables.sources.built_in import load_built_in
from tests import plans

NAMES = ("clinic-a", "clinic-b", "clinic-c")
ALL = "age,bmi,sex,died,clinic\n" + "".join(
    f"{30 + i},{'' if i % 7 == 0 else 20 + i / 10},{'FM'[i % 2]},{i % 2},clinic-{'abc'[i % 3]}\n"
    for i in range(60)
)
TABLE = {"label": "died", "numeric": ["age", "bmi"], "categorical": {"sex": ["F", "M"]}, "missing": "mean"}


def plan(data: object, names: tuple[str, ...] = NAMES, **task: object) -> Plan:
    return plans.parsed(names, task={"data": data, **task}, training={"seed": 7})


def site(name: str = "clinic-a", **data: str) -> SiteConfig:
    return SiteConfig.model_validate({"collaborator": name, "data": data})


def load_site(stated: Plan, own: SiteConfig, name: ParticipantId, root: Path) -> Splits:
    return read_site_records(stated, own, name, root).splits


def same(left: Splits, right: Splits) -> bool:
    parts = [(getattr(left, name), getattr(right, name)) for name in ("train", "validation", "test")]
    return all(
        (a is None and b is None)
        or (np.array_equal(a.features, b.features) and np.array_equal(a.labels, b.labels) and a.schema == b.schema)
        for a, b in parts
    )


@pytest.mark.parametrize(
    "scheme", [{"scheme": "random"}, {"scheme": "label"}, {"scheme": "dirichlet", "alpha": 0.3}]
)
def test_a_site_with_built_in_data_has_what_a_simulation_has(tmp_path: Path, scheme: dict[str, object]) -> None:
    stated = plan("breast-cancer", partition=scheme, test_fraction=0.2, validation_fraction=0.1)
    federation = load_federation(stated, tmp_path)
    assert list(federation) == list(NAMES)
    assert (
        sum(len(p) for s in federation.values() for p in (s.train, s.validation, s.test) if p is not None) == 569
    )
    for name, splits in federation.items():
        assert same(load_site(stated, site(name), name, tmp_path), splits)


def test_sites_with_their_own_tables_have_what_a_joint_simulation_gives(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text(ALL)
    (tmp_path / "new.csv").write_text(ALL)
    simulated = plan({"csv": {**TABLE, "train": "all.csv", "test": "new.csv", "collaborator": "clinic"}})
    header, *rows = ALL.splitlines()
    for name, splits in load_federation(simulated, tmp_path).items():
        own = "\n".join([header, *(row for row in rows if row.endswith(name))])
        (tmp_path / f"{name}.csv").write_text(own)
        config = site(name, train=f"{name}.csv", test=f"{name}.csv")
        assert same(load_site(simulated, config, name, tmp_path), splits)
    for name in NAMES:
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *(row for row in rows if row.endswith(name))]))
    files = {name: f"{name}.csv" for name in NAMES}
    stated = plan({"csv": {**TABLE, "train_of": files}}, test_fraction=0.25)
    federation = load_federation(stated, tmp_path)
    assert list(federation) == list(NAMES)
    for name, splits in federation.items():
        assert len(splits.train) == 15
        assert same(load_site(stated, site(name, train=files[name]), name, tmp_path), splits)
    for wrong in ({NAMES[0]: "a.csv"}, {**files, "clinic-z": "z.csv"}):
        with pytest.raises(PlanError, match=r"train_of: and .* do not name the same: clinic-"):
            load_federation(plan({"csv": {**TABLE, "train_of": wrong}}), tmp_path)


def test_one_site_may_have_parquet_where_others_have_csv(tmp_path: Path) -> None:
    header, *rows = ALL.splitlines()
    for name in NAMES:
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *(row for row in rows if row.endswith(name))]))
    texts = {name: f"{name}.csv" for name in NAMES}
    pd.read_csv(tmp_path / texts[NAMES[0]]).to_parquet(tmp_path / "data")
    files = {**texts, NAMES[0]: "data"}
    stated = plan({"csv": {**TABLE, "train_of": files}}, test_fraction=0.25)
    read = load_federation(plan({"csv": {**TABLE, "train_of": texts}}, test_fraction=0.25), tmp_path)
    for name, splits in load_federation(stated, tmp_path).items():
        assert same(load_site(stated, site(name, train=files[name]), name, tmp_path), splits)
        assert same(splits, read[name])


def test_missing_values_are_filled_with_the_means_of_the_site_s_own_training_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,bmi,sex,died,clinic\n1,10,F,0,x\n2,,F,1,x\n3,30,F,1,x\n")
    (tmp_path / "b.csv").write_text("age,bmi,sex,died,clinic\n9,,F,0,x\n")
    splits = load_site(
        plan({"csv": TABLE}), site(train="a.csv", test="b.csv"), ParticipantId("clinic-a"), tmp_path
    )
    assert splits.train.features[:, 1].tolist() == [10, 20, 30]
    assert splits.test is not None
    assert splits.test.features[:, 1].tolist() == [20]


def test_several_collaborators_of_one_data_set_need_a_partition_and_one_does_not(tmp_path: Path) -> None:
    assert len(load_federation(plan("breast-cancer", NAMES[:1]), tmp_path)[ParticipantId("clinic-a")].train) == 569
    with pytest.raises(PlanError, match=r"task\.partition: is missing"):
        load_federation(plan("breast-cancer"), tmp_path)
    (tmp_path / "all.csv").write_text(ALL)
    stated = plan({"csv": {**TABLE, "train": "all.csv"}}, partition={"scheme": "column", "column": "clinic"})
    simulated = load_federation(stated, tmp_path)[ParticipantId("clinic-b")]
    assert len(simulated.train) == 20
    assert same(load_site(stated, site(train="all.csv"), ParticipantId("clinic-b"), tmp_path), simulated)


def test_a_missing_file_and_a_column_without_values_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file with training records is named"):
        load_site(plan({"csv": TABLE}), site(), ParticipantId("clinic-a"), tmp_path)
    (tmp_path / "a.csv").write_text("age,bmi,sex,died\n1,,F,0\n2,,F,1\n")
    with pytest.raises(DataError, match=r"'bmi' has no value in any of the 2 training records of clinic-a$"):
        load_site(plan({"csv": TABLE}), site(train="a.csv"), ParticipantId("clinic-a"), tmp_path)
    (tmp_path / "nan_data.py").write_text(
        "import numpy as np\n\ndef load(root):\n    return np.array([[1.0], [np.nan]]), np.array([0, 1])\n"
    )
    with pytest.raises(DataError, match=r"training records of clinic-a: feature \(0,\) of record 1 is missing$"):
        load_federation(plan("nan_data:load", NAMES[:1]), tmp_path)


@pytest.mark.parametrize(
    ("data", "task", "shape", "classes"),
    [
        ("digits", {}, (64,), 10), ({"csv": TABLE}, {}, (5,), 2),
        ({"csv": {**TABLE, "label_values": ["a", "b", "c"]}}, {}, (5,), 3),
        ({"csv": {**TABLE, "numeric": "all"}}, {"input_shape": [9], "classes": 4}, (9,), 4),
        ({"mnist": {}}, {}, (1, 28, 28), 10),
        ({"images": {"label": "Young", "height": 32, "width": 16}}, {}, (3, 32, 16), 2),
        ({"acs_employment": {}}, {}, (16,), 2), ({"eicu": {}}, {}, (63,), 2),
        ("src.data:load", {"input_shape": [3, 8, 8], "classes": 7}, (3, 8, 8), 7),
    ],
)  # fmt: skip
def test_the_plan_alone_declares_the_features(
    data: object, task: dict[str, object], shape: tuple[int, ...], classes: int
) -> None:
    schema = declared_schema(plan(data, **task))
    assert schema is not None
    assert (schema.input_shape, schema.classes) == (shape, classes)


@pytest.mark.parametrize("data", [{"csv": {**TABLE, "numeric": "all"}}, "src.data:load"])
def test_where_only_the_data_can_tell_nothing_is_declared(data: object) -> None:
    assert declared_schema(plan(data)) is None


def test_bundled_sets_are_scikit_learns_and_numbers_alone_are_standardised() -> None:
    dataset = load_built_in("breast-cancer")
    assert np.array_equal(dataset.features, load_breast_cancer().data)
    assert dataset.schema.names[0] == "mean radius"
    assert (dataset.schema.input_shape, dataset.schema.classes) == ((30,), 2)
    assert (len(load_built_in("digits")), load_built_in("digits").schema.classes) == (1797, 10)
    schema = declared_schema(plan({"csv": {**TABLE, "numeric": "all"}}, input_shape=[9]))
    assert schema is not None
    assert schema.numeric == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("data", "task", "message"),
    [
        ({"mnist": {}}, {"classes": 3}, r"task\.classes: is 3, the data have 10"),
        ("digits", {"input_shape": [1, 8, 8]}, r"task\.input_shape: is \[1, 8, 8\], the data have \[64\]"),
        ({"csv": {**TABLE, "numeric": "all"}}, {"input_shape": [2]}, "cannot hold 3 columns of categories"),
    ],
)
def test_a_statement_against_the_source_is_refused(data: object, task: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        declared_schema(plan(data, **task))


def test_a_site_whose_data_contradict_the_plan_is_refused_and_own_test_records_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,died\n1,0\n")
    table = {"label": "died", "numeric": "all"}
    with pytest.raises(PlanError, match=r"input_shape: is \[5\], the data have \[1\]"):
        load_site(plan({"csv": table}, input_shape=[5]), site(train="a.csv"), ParticipantId("clinic-a"), tmp_path)
    body = "d = load_built_in('digits')\n    return Splits(d, test=d)"
    (tmp_path / "own_test.py").write_text(
        "from fedfair.tables.sources.built_in import load_built_in\n"
        f"from fedfair.tables.dataset import Splits\n\ndef load(root):\n    {body}\n"
    )
    with pytest.raises(PlanError, match=r"task\.test_fraction: is 0\.1, but the data bring"):
        load_federation(plan("own_test:load", NAMES[:1], test_fraction=0.1), tmp_path)


def test_real_stays_and_digits_are_dealt_whole(data_root: Path) -> None:
    names = ("midwest", "northeast", "south", "unknown", "west")
    stated = plan({"eicu": {"folder": "eicu_demo", "collaborator": "region"}}, names, test_fraction=0.3)
    federation = load_federation(stated, data_root)
    assert {name: len(s.train) + len(s.test or ()) for name, s in federation.items()} == {
        "midwest": 718, "northeast": 138, "south": 666, "unknown": 199, "west": 458,
    }  # fmt: skip
    train = {person for s in federation.values() for person in s.train.columns["uniquepid"].tolist()}
    test = {person for s in federation.values() if s.test for person in s.test.columns["uniquepid"].tolist()}
    assert not train & test
    names = tuple(f"digit-{k}" for k in range(10))
    stated = plan({"mnist": {}}, names, partition={"scheme": "label"})
    own = load_site(stated, site("digit-7", root=str(data_root / "mnist")), ParticipantId("digit-7"), Path())
    assert own.test is not None
    assert (set(own.train.labels.tolist()), len(own.train), len(own.test)) == ({7}, 6265, 1028)


def test_where_records_are_protected_one_more_moves_no_other_between_the_splits(tmp_path: Path) -> None:
    table = {**TABLE, "ranges": {"age": [0, 120], "bmi": [10, 60]}}
    stated = plan({"csv": table}, test_fraction=0.3, standardize="ranges")
    values = stated.model_dump() | {"privacy": {"sample_level": {"noise_multiplier": 2.0}}}
    header, *rows = ALL.splitlines()
    tested = []
    for missing in (0, 1):
        (tmp_path / "own.csv").write_text("\n".join([header, *rows[missing:]]))
        own = load_site(Plan.model_validate(values), site(train="own.csv"), ParticipantId("clinic-a"), tmp_path)
        assert own.test is not None
        tested.append([{row.tobytes() for row in part.features} for part in (own.train, own.test)])
    (train, test), (train_without, test_without) = tested
    assert train_without <= train
    assert test_without <= test
    assert len(train | test) == len(train_without | test_without) + 1
