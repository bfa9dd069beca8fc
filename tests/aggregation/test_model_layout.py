import hashlib
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.errors import LocalProtocolError

FLOAT32 = np.dtype(np.float32)
TWO = Layout((LayoutEntry("w", (2, 3)), LayoutEntry("b", (3,))), FLOAT32)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    names = draw(st.lists(st.text(min_size=1, max_size=6), unique=True, max_size=5))
    shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
    entries = tuple(LayoutEntry(name, draw(shapes), draw(st.booleans())) for name in names)
    return Layout(entries, draw(st.sampled_from([FLOAT32, np.dtype(np.float64)])))


@settings(deadline=None, max_examples=30)
@given(layouts(), st.randoms(use_true_random=False))
def test_a_round_trip_changes_nothing_in_any_order_of_declaration(layout: Layout, random: Random) -> None:
    shuffled = list(layout.entries)
    random.shuffle(shuffled)
    assert Layout(tuple(shuffled), layout.dtype).digest == layout.digest
    vector = np.arange(layout.dimension, dtype=layout.dtype)
    assert np.array_equal(layout.flatten(layout.unflatten(vector)), vector)


@settings(deadline=None, max_examples=30)
@given(layouts(), layouts())
def test_different_layouts_have_different_digests(left: Layout, right: Layout) -> None:
    assert (left == right) == (left.digest == right.digest)


@pytest.mark.parametrize(
    "other",
    [
        Layout((LayoutEntry("w", (3, 2)), LayoutEntry("b", (3,))), FLOAT32),
        Layout((LayoutEntry("w", (2, 3), trainable=False), LayoutEntry("b", (3,))), FLOAT32),
        Layout(TWO.entries, np.dtype(np.float64)),
        Layout((LayoutEntry("w", (6,)), LayoutEntry("b", (3,))), FLOAT32),
    ],
)
def test_a_change_that_keeps_the_length_still_changes_the_digest(other: Layout) -> None:
    assert other.dimension == TWO.dimension
    assert other.digest != TWO.digest


def test_entries_digest_and_views_of_a_layout() -> None:
    vector = TWO.flatten({"w": np.arange(6, dtype=FLOAT32).reshape(2, 3), "b": np.full(3, 9, FLOAT32)})
    assert vector.tolist() == [9, 9, 9, 0, 1, 2, 3, 4, 5]
    assert TWO.dimension == 9
    fields = [b"fedfair/layout/v1", b"<f4", b"b", b"trainable", (3).to_bytes(8, "big")]
    fields += [b"w", b"trainable", (2).to_bytes(8, "big") + (3).to_bytes(8, "big")]
    assert TWO.digest == hashlib.sha256(b"".join(len(f).to_bytes(8, "big") + f for f in fields)).digest()
    vector = np.zeros(9, FLOAT32)
    TWO.unflatten(vector)["b"][1] = 5
    assert vector[1] == 5


@pytest.mark.parametrize("vector", [np.zeros(8, FLOAT32), np.zeros((9, 1), FLOAT32), np.zeros(9)])
def test_a_vector_of_another_length_or_width_is_refused(vector: np.ndarray) -> None:
    with pytest.raises(LocalProtocolError, match="does not fit a layout"):
        TWO.unflatten(vector)


def test_tensors_that_do_not_fit_and_other_widths_are_refused() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        TWO.flatten({"b": np.zeros(4, FLOAT32), "v": np.zeros(1, FLOAT32)})
    assert "'v' is unknown" in caught.value.message
    assert "'w' is missing" in caught.value.message
    assert "'b' is (4,) float32, not (3,) float32" in caught.value.message
    with pytest.raises(LocalProtocolError, match=r"'b' is .* float64, not"):
        TWO.flatten({"b": np.zeros(3), "w": np.zeros((2, 3), FLOAT32)})
    with pytest.raises(LocalProtocolError, match="two tensors called 'w'"):
        Layout((LayoutEntry("w", (1,)), LayoutEntry("w", (2,))), FLOAT32)
    with pytest.raises(LocalProtocolError, match="not float16"):
        Layout((), np.dtype(np.float16))
