import hashlib
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.tables.seeds import derived_seed, draw_batch, generator


def draws(source: torch.Generator) -> list[int]:
    return torch.randint(1 << 30, (4,), generator=source).tolist()


@pytest.mark.parametrize(
    "words", [("batch", 71), ("batch", 7), ("batch7", 1), ("batch", "7", 1), ("batch", 7, "1")]
)
def test_words_that_look_alike_give_other_draws(words: tuple[str | int, ...]) -> None:
    assert draws(generator(0, *words)) != draws(generator(0, "batch", 7, 1))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text() | st.integers(), max_size=4), st.lists(st.text() | st.integers(), max_size=4))
def test_different_words_have_different_seeds(left: list[str | int], right: list[str | int]) -> None:
    assert (derived_seed(1, *left) == derived_seed(1, *right)) == (left == right)


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 300), st.integers(1, 400), st.integers(0, 99))
def test_a_batch_has_distinct_indices_in_range(n: int, batch_size: int, seed: int) -> None:
    batch = draw_batch(generator(seed), n, batch_size)
    assert batch.dtype == torch.int64
    assert len(set(batch.tolist())) == len(batch) == min(n, batch_size)
    assert 0 <= batch.min() <= batch.max() < n


@pytest.mark.parametrize(("n", "batch_size"), [(17, 2), (5, 2)])  # by rejection; by shuffling
def test_every_ordered_choice_is_equally_likely(n: int, batch_size: int) -> None:
    source, repeats, cells = generator(0, "uniform"), 40_000, n * (n - 1)
    counts = Counter(tuple(draw_batch(source, n, batch_size).tolist()) for _ in range(repeats))
    expected = repeats / cells
    statistic = sum((counts[pair] - expected) ** 2 / expected for pair in counts)
    statistic += (cells - len(counts)) * expected
    # Laurent and Massart 2000, Lemma 1: chi-squared with k degrees exceeds k + 2 sqrt(kx) + 2x with
    # probability at most exp(-x); x = 14 makes a false alarm rarer than one in a million.
    degrees = cells - 1
    assert statistic <= degrees + 2 * math.sqrt(degrees * 14) + 28


@settings(deadline=None, max_examples=60)
@given(st.integers(), st.lists(st.sampled_from(["batch", "1", 1, 7, ""]) | st.text(), max_size=6))
def test_a_seed_is_the_hash_of_all_its_words_whatever_was_hashed_before(seed: int, words: list[str | int]) -> None:
    framed = b""
    for word in ("fedfair/seed/v1", seed, *words):
        text = str(word).encode()
        framed += (b"i" if isinstance(word, int) else b"s") + len(text).to_bytes(8, "big") + text
    assert derived_seed(seed, *words).to_bytes(8, "big") == hashlib.sha256(framed).digest()[:8]


def test_a_full_batch_is_every_record_and_rejection_goes_on_in_its_stream() -> None:
    assert draw_batch(generator(0), 5, 5).tolist() == draw_batch(generator(0), 5, 9).tolist() == [0, 1, 2, 3, 4]
    for seed in range(50):
        source, expected = generator(seed), list[int]()
        while len(expected) < 5:
            for index in torch.randint(40, (5 - len(expected),), generator=source).tolist():
                expected += [] if index in expected else [index]
        assert draw_batch(generator(seed), 40, 5).tolist() == expected


def test_seeds_give_the_same_pinned_draws_everywhere_and_leave_the_global_generator_alone() -> None:
    assert draws(generator(3, "batch", 7, "clinic-a")) == draws(generator(3, "batch", 7, "clinic-a"))
    # printf 's\0\0\0\0\0\0\0\017fedfair/seed/v1i\0\0\0\0\0\0\0\0015s\0\0\0\0\0\0\0\005batch' | sha256sum
    assert derived_seed(5, "batch") == 0xB8430A37C68B00C3
    words = ("batch", 1, 1, "clinic-a", 0)
    assert draw_batch(generator(0, *words), 100, 4).tolist() == [76, 51, 39, 78]
    assert draw_batch(generator(0, *words), 20, 3).tolist() == [16, 7, 3]
    before = torch.get_rng_state()
    draw_batch(generator(0, "batch"), 1000, 5)
    assert torch.equal(torch.get_rng_state(), before)
