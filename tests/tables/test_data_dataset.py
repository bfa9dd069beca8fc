import numpy as np
import pytest

from fedfair.errors import DataError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.tables.dataset import Dataset, Splits

SCHEMA = FeatureSchema((2,), 2, (0, 1), ("age", "dose"))
FEATURES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
LABELS = np.array([0, 1, 1])


def test_taking_records_takes_all_of_them_and_no_record_is_a_data_set() -> None:
    columns = {"site": np.array(["a", "b", "c"])}
    taken = Dataset(FEATURES, LABELS, SCHEMA, columns, "site").take(np.array([2, 0]))
    assert taken.features.tolist() == [[5, 6], [1, 2]]
    assert taken.labels.tolist() == [1, 0]
    assert taken.columns["site"].tolist() == ["c", "a"]
    assert taken.person_column == "site"
    assert len(taken) == 2
    assert len(Dataset(FEATURES, LABELS, SCHEMA).take(np.array([], np.int64))) == 0


@pytest.mark.parametrize(
    ("features", "labels", "columns", "message"),
    [
        (FEATURES[:2], LABELS, {}, r"\(2, 2\) and labels of shape \(3,\) do not match \(3, 2\)"),
        (FEATURES[:, :1], LABELS, {}, "do not match"),
        (FEATURES, LABELS, {"site": np.array(["a"])}, r"column 'site' has shape \(1,\)"),
        (FEATURES.astype(np.int64), LABELS, {}, "features must be floats"),
        (FEATURES, LABELS.astype(np.int32), {}, "labels int64"),
        (np.array([[1, 2], [3, 4], [-np.inf, 6]]), LABELS, {}, "'age' of record 2 is infinite"),
        (FEATURES, np.array([0, 2, 1]), {}, "labels run from 0 to 2, but there are 2 classes"),
        (FEATURES, np.array([0, -1, 1]), {}, "labels run from -1 to 1"),
    ],
)
def test_records_that_do_not_fit_their_schema_are_refused(
    features: np.ndarray, labels: np.ndarray, columns: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Dataset(features, labels, SCHEMA, columns)


@pytest.mark.parametrize("part", ["validation", "test"])
def test_splits_with_other_columns_than_the_training_records_are_refused(part: str) -> None:
    train = Dataset(FEATURES, LABELS, SCHEMA)
    other = Dataset(FEATURES, LABELS, FeatureSchema((2,), 2, (0, 1), ("age", "weight")))
    with pytest.raises(DataError, match=rf"the {part} records do not .* only one of them has dose, weight$"):
        Splits(train, **{part: other})
    narrow = Dataset(FEATURES[:, :1], LABELS, FeatureSchema((1,), 3))
    with pytest.raises(DataError, match=r"shape \(1,\) and 3 classes, not \(2,\) and 2"):
        Splits(train, **{part: narrow})
