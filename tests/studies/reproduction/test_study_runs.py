"""The list of runs: every mark has its candidates, every candidate its repetitions, nothing is run twice."""

from pathlib import Path

import pytest

from fedfair.plan.schema import Plan
from fedfair.studies.reproduction.runs import Cell, RunList
from fedfair.studies.reproduction.studies import STUDIES
from fedfair.studies.reproduction.study import Figure, Repeats, merged
from tests.studies.reproduction.small_study import SIZE, study


def test_candidates_and_figures_share_runs() -> None:
    runs = RunList(study(Figure.BASELINES), SIZE, Path())
    found = runs.candidates[Cell(Figure.BASELINES, "fedsrcvar", 0.1, None)]
    assert [(each.settings["learning_rate"], each.settings["tradeoff"]) for each in found] == [
        (0.1, 0.01), (0.1, 0.05), (0.01, 0.01), (0.01, 0.05),
    ]  # fmt: skip
    for candidate in found:
        assert [point.plan.task.test_fold for point in candidate.points] == [1, 2]
        for point in candidate.points:
            assert point.plan.objective.worst_group_size == 0.1
            assert point.plan.objective.tradeoff == candidate.settings["tradeoff"]
            assert point.plan.training.learning_rate == candidate.settings["learning_rate"]
    runs = RunList(study(Figure.BASELINES, methods=("fedavg",)), SIZE, Path())
    assert len(runs.candidates) == len(SIZE.group_sizes)
    assert len(runs.points) == len(SIZE.rates["epochs"]) * SIZE.repeats
    assert all(point.plan.training.local_epochs == SIZE.local_epochs for point in runs.points)
    assert all(point.plan.training.batch_size == 128 for point in runs.points)
    both = RunList(study(Figure.BASELINES, Figure.TRADEOFFS, methods=("fedsrcvar",)), SIZE, Path())
    # 2 sizes x 2 rates x 2 small tradeoffs x 2 folds, and of the fan only tradeoff 0.5 is new.
    assert len(both.points) == 16 + 8


def test_the_two_smoothings_are_two_methods_and_thresholds_move_at_a_stable_rate() -> None:
    runs = RunList(study(Figure.BASELINES, methods=("fedsrcvar-zang", "fedsrcvar")), SIZE, Path())
    for point in runs.points:
        plan = point.plan
        assert (
            plan.objective.smoothing.name
            == {"fedsrcvar-zang": "zang", "fedsrcvar": "softplus"}[str(point.settings["method"])]
        )
        # A curvature of 1 / gamma and of 1 / (4 gamma), times (1 - epsilon) / rho.
        wide = {"zang": 0.05, "softplus": 0.2}[plan.objective.smoothing.name]
        limit = wide * plan.objective.worst_group_size / (1 - plan.objective.tradeoff)
        stated = plan.training.threshold_learning_rate
        assert stated == pytest.approx(min(plan.training.learning_rate, limit), rel=0.005)


def test_two_rows_make_the_steps_of_a_plan_that_states_none_and_one_of_them_follows_the_excess() -> None:
    methods = ("fedsrcvar-zang", "fedsrcvar-default", "fedsrcvar-excess")
    of = study(Figure.BASELINES, methods=methods).model_copy(update={"reference": {"hidden": (7, 7)}})
    runs = RunList(of, SIZE, Path())
    unsaid = Plan.model_validate(of.base(Path())).training
    by_method = {name: [one for one in runs.points if one.settings["method"] == name] for name in methods}
    # Sizes, small tradeoffs and folds; and, of plain steps alone, learning rates.
    assert [len(by_method[name]) for name in methods] == [16, 8, 8]
    for name in methods[1:]:
        for point in by_method[name]:
            made, objective = point.plan.training, point.plan.objective
            assert (made.learning_rate, made.server_optimizer) == (unsaid.learning_rate, unsaid.server_optimizer)
            assert (made.schedule, made.warm_up) == (unsaid.schedule, unsaid.warm_up)
            assert objective.smoothing == Plan.model_validate(of.base(Path())).objective.smoothing
            assert "learning_rate" not in point.settings
            assert objective.measure == ("excess" if name == "fedsrcvar-excess" else "loss")
            reference = None if objective.reference is None else objective.reference.hidden
            assert reference == ((7, 7) if name == "fedsrcvar-excess" else None)


def test_rates_records_and_steps_of_methods_are_equal() -> None:
    size = SIZE.model_copy(update={"rates": {"tails": (0.3,), "epochs": (0.01, 0.02)}})
    runs = RunList(study(Figure.BASELINES), size, Path())
    tried = {(point.settings["method"], point.plan.training.learning_rate) for point in runs.points}
    assert tried == {("fedsrcvar", 0.3), ("fedavg", 0.01), ("fedavg", 0.02)}
    assert {point.plan.training.schedule for point in runs.points} == {"linear"}
    runs = RunList(study(Figure.BASELINES, methods=("erm", "dro", "bpf", "afl")), SIZE, Path())
    by_method = {str(point.settings["method"]): point.plan.training for point in runs.points}
    assert by_method["erm"].batch_size == 3 * 16
    for name in ("dro", "bpf"):
        assert by_method[name].batch_size == SIZE.answered
        assert by_method[name].options.best_response == "batch"
    assert by_method["afl"].options.adversary_learning_rate == 0.001
    assert by_method["afl"].output == "tail"
    size = SIZE.model_copy(update={"rounds": 30})
    runs = RunList(study(Figure.LOCAL_STEPS, methods=("fedsrcvar",)), size, Path())
    made = {(point.plan.training.local_steps, point.plan.training.rounds) for point in runs.points}
    assert made == {(1, 30), (5, 6), (10, 3)}


@pytest.mark.slow
def test_every_published_study_makes_valid_plans_in_both_sizes(tmp_path: Path) -> None:
    for studies in STUDIES.values():
        for each in studies:
            for size in (each.quick, each.full):
                runs = RunList(each, size, tmp_path)
                assert len(runs.points) == len({point.id for point in runs.points}) > 0
                assert all(point.plan.task.validation_fraction > 0 for point in runs.points), each.name


def test_thresholds_seeds_and_steps_stand_beside_one_another() -> None:
    runs = RunList(study(Figure.LOCAL_THRESHOLDS), SIZE, Path())
    assert {point.plan.training.algorithm for point in runs.points} == {"fedsrcvar", "localbpf"}
    assert len({str(point.plan.objective) for point in runs.points}) == 1
    seeds = study(Figure.TRADEOFFS).model_copy(update={"repeats": Repeats.SEEDS})
    runs = RunList(seeds, SIZE, Path())
    assert {(point.plan.training.seed, point.plan.task.test_fold) for point in runs.points} == {(1, 1), (2, 1)}
    runs = RunList(study(Figure.LOCAL_STEPS), SIZE, Path())
    steps = {(cell.method, cell.local_steps) for cell in runs.candidates}
    assert steps == {("fedsrcvar", 1), ("fedsrcvar", 5), ("fedsrcvar", 10), ("fedavg", 1)}
    whole = merged({"a": {"b": 1, "c": [1, 2]}, "d": 1}, {"a": {"c": [3]}}, {"d": {"e": 2}})
    assert whole == {"a": {"b": 1, "c": [3]}, "d": {"e": 2}}
    runs = RunList(study(*Figure, methods=("fedsrcvar-zang", "fedavg")), SIZE, Path())
    stages = list(runs.by_figure())
    assert {point.plan.objective.tradeoff for point in stages[0] if point.settings["method"] != "fedavg"} == {0.05}
    assert {point.id for stage in stages for point in stage} == {point.id for point in runs.points}
