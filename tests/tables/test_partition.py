import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.sources import Partition
from fedfair.tables.dataset import Dataset
from fedfair.tables.partition import deal

RANDOM = Partition(scheme="random")
LABEL = Partition(scheme="label")
CONTIGUOUS = Partition(scheme="contiguous")
RULES = [RANDOM, LABEL, CONTIGUOUS, Partition(scheme="dirichlet", alpha=0.1)]


def names(count: int) -> list[ParticipantId]:
    return [ParticipantId(f"site-{k}") for k in range(count)]


def records(labels: np.ndarray, classes: int = 10, **columns: np.ndarray) -> Dataset:
    features = np.arange(len(labels), dtype=float)[:, None]
    return Dataset(features, labels.astype(np.int64), FeatureSchema((1,), classes), columns)


def turns(n: int, classes: int = 10) -> Dataset:
    return records(np.arange(n) % classes, classes)


def identities(part: Dataset) -> list[float]:
    return part.features[:, 0].tolist()


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(RULES), st.integers(1, 12), st.integers(0, 150), st.integers(0, 5))
def test_every_record_goes_to_one_site_and_all_get_one(rule: Partition, count: int, more: int, seed: int) -> None:
    train, test = turns(120 + more), turns(more)
    dealt = deal([train, test], rule, names(count), seed)
    assert list(dealt) == names(count)
    for place, whole in enumerate((train, test)):
        given_out = [identity for parts in dealt.values() for identity in identities(parts[place])]
        assert sorted(given_out) == identities(whole)
    assert all(len(parts[0]) for parts in dealt.values())
    assert all(identities(part) == sorted(identities(part)) for parts in dealt.values() for part in parts)


@pytest.mark.parametrize("rule", [RANDOM, RULES[3]])
def test_the_seed_decides_and_nothing_else(rule: Partition) -> None:
    first, again, other = (deal([turns(200)], rule, names(3), seed) for seed in (1, 1, 2))
    assert identities(first[names(3)[0]][0]) == identities(again[names(3)[0]][0])
    assert identities(first[names(3)[0]][0]) != identities(other[names(3)[0]][0])


def test_classes_are_dealt_to_as_many_to_fewer_and_to_more_collaborators() -> None:
    dealt = deal([turns(50), turns(20)], LABEL, names(10), 0)
    for k, parts in enumerate(dealt.values()):
        assert set(parts[0].labels.tolist()) == set(parts[1].labels.tolist()) == {k}
    held = [set(parts[0].labels.tolist()) for parts in deal([turns(50)], LABEL, names(3), 0).values()]
    assert held == [{0, 3, 6, 9}, {1, 4, 7}, {2, 5, 8}]
    dealt = deal([turns(100, 2)], LABEL, names(5), 0)
    assert [(set(parts[0].labels.tolist()), len(parts[0])) for parts in dealt.values()] == [
        ({0}, 17), ({1}, 25), ({0}, 17), ({1}, 25), ({0}, 16),
    ]  # fmt: skip


def test_contiguous_and_random_shares_have_the_stated_sizes() -> None:
    rule = Partition(scheme="contiguous", fractions=(0.5, 0.3, 0.2))
    held = [identities(parts[0]) for parts in deal([turns(10)], rule, names(3), 0).values()]
    assert held == [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]]
    rule = Partition(scheme="random", fractions=(0.7, 0.2, 0.1))
    dealt = deal([turns(1000)], rule, names(3), 0)
    assert [len(parts[0]) for parts in dealt.values()] == [700, 200, 100]
    # 100 of each class, 70 expected at the first: six standard deviations of a hypergeometric count are 27.
    assert np.abs(np.bincount(dealt[names(3)[0]][0].labels) - 70).max() <= 27


@pytest.mark.parametrize(
    ("values", "people", "message"),
    [
        (["a", "b", "c", "c"], ["x", "y"], r"'site' has 3 values \(a, b, c\), the plan names 2 collaborators"),
        (["a", "b", "c", "c"], ["a", "b"], "do not name the same: c"),
        (["a", "b", "b", "b"], ["a", "b", "z"], "do not name the same: z"),
        (["a b", "a-b", "c", "c"], ["a-b", "c"], "do not name the same"),
        ([str(i) for i in range(30)], ["x"], "and 20 more"),
    ],
)
def test_a_column_unlike_the_collaborators_is_refused(values: list[str], people: list[str], message: str) -> None:
    data = records(np.zeros(len(values)), site=np.array(values))
    with pytest.raises(PlanError, match=message):
        deal([data], Partition(scheme="column", column="site"), [ParticipantId(name) for name in people], 0)


def test_a_column_deals_by_name_or_by_the_order_of_its_values_and_must_have_been_kept() -> None:
    region = np.array(["West Coast", "South", "South", "West Coast", "Midwest"])
    people = [ParticipantId(name) for name in ("west-coast", "south", "midwest")]
    dealt = deal([records(np.zeros(5), region=region)], Partition(scheme="column", column="region"), people, 0)
    assert [identities(parts[0]) for parts in dealt.values()] == [[0, 3], [1, 2], [4]]
    rule = Partition(scheme="column", column="code")
    train = records(np.zeros(4), code=np.array([9, 2, 9, 5]))
    test = records(np.zeros(1), code=np.array([9]))
    dealt = deal([train, test], rule, names(3), 0)
    assert [identities(parts[0]) for parts in dealt.values()] == [[1], [3], [0, 2]]
    assert [len(parts[1]) for parts in dealt.values()] == [0, 0, 1]
    data = records(np.zeros(2), region=np.array(["a", "b"]))
    with pytest.raises(PlanError, match="no column 'regoin'") as caught:
        deal([data], Partition(scheme="column", column="regoin"), names(2), 0)
    assert caught.value.remedy == "did you mean 'region'?"


@pytest.mark.parametrize("rule", RULES)
def test_fewer_records_than_collaborators_are_refused(rule: Partition) -> None:
    with pytest.raises(PlanError, match="leaves no training records to site-"):
        deal([turns(3)], rule, names(5), 0)


def test_small_alphas_are_unequal_and_training_records_reach_all_sites() -> None:
    def largest_share(alpha: float) -> tuple[float, float]:
        dealt = deal([turns(5000), turns(5000)], Partition(scheme="dirichlet", alpha=alpha), names(5), 0)
        shares = [np.array([np.bincount(p[i].labels, minlength=10) / 500 for p in dealt.values()]) for i in (0, 1)]
        # The same shares cut both parts; each cut is rounded to a record of 500, and one record may be given away.
        assert np.abs(shares[0] - shares[1]).max() <= 3 / 500
        return float(shares[0].max(axis=0).mean()), float(shares[0].min(axis=0).mean())

    assert largest_share(0.05)[0] > 0.7
    # Dirichlet(1000, ..., 1000): a share has mean 0.2 and standard deviation 0.2 * sqrt(4 / 5001) < 0.006.
    assert 0.15 < largest_share(1000)[1] < largest_share(1000)[0] < 0.25
    rule = Partition(scheme="column", column="site")
    train, test = records(np.zeros(1), site=np.array(["a"])), records(np.zeros(1), site=np.array(["b"]))
    with pytest.raises(PlanError, match="leaves no training records to b "):
        deal([train, test], rule, [ParticipantId("a"), ParticipantId("b")], 0)


@pytest.mark.parametrize("rule", RULES)
def test_every_sites_share_is_found_as_by_searching_for_each(rule: Partition) -> None:
    train, test = turns(150), turns(40)
    dealt = deal([train, test], rule, names(7), 3)
    for part, place in ((train, 0), (test, 1)):
        found = {name: identities(own[place]) for name, own in dealt.items()}
        assert all(numbers == sorted(numbers) for numbers in found.values())
        assert sorted(number for numbers in found.values() for number in numbers) == identities(part)
