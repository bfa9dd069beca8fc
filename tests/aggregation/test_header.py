"""A header by name is the same header as by place, and every place has one name."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.evaluation_sums import evaluation_layout
from fedfair.aggregation.feature_moments import column_count, moments_layout
from fedfair.aggregation.header import Bits, Field, Group, Header, Number
from fedfair.aggregation.loss_histogram import HistogramSpec, block_layout
from fedfair.aggregation.quantile_query import exact_layout
from fedfair.aggregation.training_sum import TRAINING_LAYOUT
from fedfair.errors import LocalProtocolError
from tests.oracles.header_places import (
    block_counts,
    block_length,
    evaluation_counts,
    evaluation_header_length,
    moments_counts,
    quantile_counts,
    site_rows,
    split_header,
)

FEW = Bits(1)
LAYOUT = Header(
    Field("weight", Number.WEIGHT, lone=FEW),
    Group(
        "splits",
        (Field("records", Number.PUBLIC_COUNT, lone=FEW), Field("losses", Number.REAL, (2,), lone=FEW)),
        (3,),
    ),
    Field("nothing", Number.COUNT, (0, 4), lone=FEW),
    Field("cells", Number.COUNT, (2, 2), lone=FEW),
)


@pytest.mark.parametrize("header", [np.zeros(13), np.zeros((14, 1)), np.zeros(14, np.float32)])
def test_another_vector_is_no_header(header: np.ndarray) -> None:
    with pytest.raises(LocalProtocolError, match="14 float64 values"):
        LAYOUT.read(header)


def test_fields_are_written_read_and_bounded_by_name() -> None:
    header = np.arange(14.0)
    found = LAYOUT.read(header)
    assert LAYOUT.length == 14
    assert float(found["weight"]) == 0.0
    assert found["splits"]["records"].tolist() == [1.0, 4.0, 7.0]
    assert found["splits"]["losses"].tolist() == [[2.0, 3.0], [5.0, 6.0], [8.0, 9.0]]
    assert found["cells"].tolist() == [[10.0, 11.0], [12.0, 13.0]]
    assert found["nothing"].shape == (0, 4)
    header = LAYOUT.built(weight=5, cells=np.eye(2))
    LAYOUT.read(header)["splits"]["losses"][1] = 7.0
    assert header.tolist() == [5.0, 0, 0, 0, 0, 7.0, 7.0, 0, 0, 0, 1.0, 0, 0, 1.0]
    assert np.flatnonzero(LAYOUT.weights()).tolist() == [0]
    assert np.flatnonzero(LAYOUT.counts(noised=True)).tolist() == [0, 1, 4, 7]
    assert np.flatnonzero(LAYOUT.counts(noised=False)).tolist() == [0, 1, 4, 7, 10, 11, 12, 13]
    with pytest.raises(ValueError, match="no field"):
        LAYOUT.built(weights=1)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 40), st.sampled_from([2, 3, 64, 65]), st.integers(0, 5), st.sampled_from([0, 1, 3]),
    st.booleans(),
)  # fmt: skip
def test_evaluations_by_name_are_by_place(bins: int, classes: int, sites: int, columns: int, noised: bool) -> None:
    spec = HistogramSpec(bins, 2.0)
    layout = evaluation_layout(spec, classes, sites, columns)
    expected = evaluation_counts(spec, classes, sites, columns, noised=noised)
    assert layout.counts(noised=noised).tolist() == expected
    header = np.arange(float(layout.length))
    found, (blocks, matrices) = layout.read(header), split_header(header, spec, classes)
    for place, name in enumerate(("records", "correct", "smoothed")):
        assert found["splits"][name].tolist() == blocks[:, place].tolist()
    assert found["splits"]["counts"].tolist() == blocks[:, 3 : bins + 4].tolist()
    assert found["splits"]["losses"].tolist() == blocks[:, bins + 4 :].tolist()
    assert found["confusion"].tolist() == ([[]] * 3 if matrices is None else matrices.tolist())
    length = evaluation_header_length(spec, classes)
    rows = site_rows(header[length : length + 9 * sites])
    for place, name in enumerate(("records", "correct", "losses")):
        assert found["sites"][name].tolist() == rows[..., place].tolist()


@given(st.integers(1, 40), st.integers(0, 6), st.integers(1, 6), st.booleans())
def test_the_other_headers_by_name_are_those_by_place(bins: int, columns: int, sizes: int, noised: bool) -> None:
    spec = HistogramSpec(bins, 2.0)
    assert block_layout(spec).length == block_length(spec)
    assert block_layout(spec).counts(noised=noised).tolist() == block_counts(spec, noised=noised)
    assert moments_layout(columns).counts(noised=noised).tolist() == moments_counts(columns, noised=noised)
    assert column_count(moments_layout(columns).zeros()) == columns
    assert exact_layout(sizes).counts(noised=False).tolist() == quantile_counts(sizes)
    assert TRAINING_LAYOUT.counts(noised=noised).tolist() == [True, False]
    assert TRAINING_LAYOUT.weights().tolist() == [True, False]
