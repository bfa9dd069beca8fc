import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.studies.sweep.grid import ALIASES, MAX_POINTS, in_words, named_axis, parse_grid, point_id
from tests.studies.sweep_kit import document, grid


def test_items_make_every_combination_and_change_nothing_else() -> None:
    points = grid("worst_group_size=0.1,0.3", "tradeoff=0.01,0.5")
    found = [(point.plan.objective.worst_group_size, point.plan.objective.tradeoff) for point in points]
    assert found == [(0.1, 0.01), (0.1, 0.5), (0.3, 0.01), (0.3, 0.5)]
    assert [in_words(point.settings) for point in points][1] == "worst_group_size=0.1, tradeoff=0.5"
    base = validated(Plan, document())
    (point,) = grid("training.batch_size=full")
    changed = base.training.model_copy(update={"batch_size": "full"})
    assert point.plan == base.model_copy(update={"training": changed})
    (point,) = grid("evaluation.every=3")
    assert point.plan.evaluation.every == 3
    lists = grid("task.model={name: linear},{name: mlp, hidden: [4, 4]}")
    assert [point.plan.task.model.model_dump()["name"] for point in lists] == ["linear", "mlp"]  # type: ignore[union-attr]
    assert [point.plan.objective.loss_bound for point in grid("loss_bound=null,2")] == [None, 2.0]
    assert [point.plan.training.batch_size for point in grid("batch_size=full,16")] == ["full", 16]
    assert [point.plan.training.learning_rate for point in grid("learning_rate=1e-3, 0.1")] == [0.001, 0.1]


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (["tradeoff"], "not of the form"), (["=1"], "not of the form"), (["tradeoff="], "no values"),
        (["tradeoff= "], "no values"), (["tradeoff=0.1,,0.2"], "not a list of YAML values"),
        (["tradeoff=0.1,"], "ends with a comma"), (["tradeoff=[0.1"], "not a list of YAML values"),
        (["tradeoff=0.1]\nother: [2"], "no values"), (["tradeof=0.1"], "did you mean 'tradeoff'"),
        (["rho=0.1"], "worst_group_size"),
        (["trainig.seed=1"], "--grid trainig.seed=1: trainig: unknown key -> did you mean 'training'"),
        (["training.sed=1"], "--grid training.sed=1: training.sed: unknown key -> did you mean 'seed'"),
        (["tradeoff=0.1,2"], "--grid tradeoff=0.1,2: objective.tradeoff: must be <= 1, found 2"),
        (["tradeoff=0.1,'0.2'"], "write it without quotes"), (["seed=true"], "must be an integer"),
        (["learning_rate=.nan"], "finite"),
        (["task.data.csv.label=y"], "task.data is 'breast-cancer' in the plan, and has no keys"),
        (["tradeoff=0.1", "objective.tradeoff=0.2"], "the same place"),
        (["task.model={name: linear}", "task.model.init=zeros"], "the same place"),
        (["tradeoff=0.1,0.10"], "asks twice for one plan"), (["learning_rate=1,1.0"], "asks twice for one plan"),
        (["training.threshold_init=3", "loss_bound=2,4"], "above objective.loss_bound 2.0"),
    ],
)  # fmt: skip
def test_a_grid_that_cannot_be_is_refused_by_the_item_at_fault(items: list[str], words: str) -> None:
    with pytest.raises(PlanError) as refusal:
        grid(*items)
    text = refusal.value.diagnostics()
    assert words in text
    assert "->" in text


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6, unique=True), st.sets(st.integers(0, 2**62), min_size=1))
def test_different_settings_have_different_identities(tradeoffs: list[float], seeds: set[int]) -> None:
    seeds = set(itertools.islice(seeds, 5))
    points = grid(f"tradeoff={','.join(map(repr, tradeoffs))}", f"seed={','.join(map(str, seeds))}")
    assert len({point.id for point in points}) == len(tradeoffs) * len(seeds)
    found = {(point.plan.objective.tradeoff, point.plan.training.seed) for point in points}
    assert found == set(itertools.product(tradeoffs, seeds))


def test_names_of_axes_are_short_words_or_places() -> None:
    for place in ALIASES.values():
        fields = Plan.model_fields
        for key in place[:-1]:
            section = fields[key].annotation
            assert section is not None
            fields = section.model_fields
        assert place[-1] in fields
    axes = parse_grid(["objective.tradeoff=0.1,0.5", "training.precision=fp32,fp64"])
    assert [axis.name for axis in axes] == ["tradeoff", "training.precision"]
    assert named_axis("tradeoff", axes) == named_axis("objective.tradeoff", axes) == "tradeoff"
    with pytest.raises(PlanError, match="'seed' is no axis") as caught:
        named_axis("seed", axes)
    assert caught.value.remedy == "the axes are tradeoff, training.precision"
    one = grid("tradeoff=0.1,0.5", "seed=1,2")
    other = grid("training.seed=2,1", "objective.tradeoff=0.50,0.10")
    assert {point.id for point in one} == {point.id for point in other}
    assert all(point.id == point_id(point.plan) for point in one)


def test_faults_of_a_grid_are_told_together_before_any_point() -> None:
    with pytest.raises(PlanError) as refusal:
        grid("tradeoff=2,0.1,3", "seed=0,1")
    text = str(refusal.value)
    assert text.count("found 2") == text.count("found 3") == 1
    seeds = ",".join(map(str, range(101)))
    with pytest.raises(PlanError, match=f"101 x 101 = 10201 points, more than {MAX_POINTS}"):
        grid(f"seed={seeds}", f"rounds={','.join(map(str, range(1, 102)))}")
    with pytest.raises(PlanError, match="'nix' is no axis") as caught:
        named_axis("nix", [])
    assert caught.value.remedy == "leave --per away: the grid has nothing to compare but seeds"
