"""From results to marks: validation records choose, test records report, failures are named."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.results.document import ResultDocument
from fedfair.results.risks import CollaboratorRisk, MeanRisk, ReportedGroupRisk, SplitRisk
from fedfair.studies.reproduction.evidence import Evidence, evidence_of, own_objective
from fedfair.studies.reproduction.runs import Cell, RunList
from fedfair.studies.reproduction.study import Figure, Study
from fedfair.studies.sweep.figures import Spread
from tests.result_files import small
from tests.studies.reproduction.small_study import SIZE, study

OURS = Cell(Figure.BASELINES, "fedsrcvar", 0.1, None)


def split(worst: float) -> SplitRisk:
    risk = ReportedGroupRisk(worst=worst, best=0.1, disparity=worst - 0.1, bound=None)
    return SplitRisk(n=10, mean=worst / 2, accuracy=0.9, by_group_size={"0.1": risk, "0.3": risk})


def result(validation: float, test: float, train: float = 1.0) -> ResultDocument:
    return small(train=split(train), validation=split(validation), test=split(test))


def marks_of(runs: RunList, results: dict[str, ResultDocument], of: Study | None = None) -> Evidence:
    return evidence_of(runs, results, of or study(Figure.BASELINES))


def answered(
    runs: RunList, answers: dict[tuple[object, object], tuple[float, float]]
) -> dict[str, ResultDocument]:
    """Return results whose validation and test risks depend on learning rate and tradeoff."""
    return {
        point.id: result(*answers[point.settings["learning_rate"], point.settings.get("tradeoff")])
        for point in runs.points
        if (point.settings["learning_rate"], point.settings.get("tradeoff")) in answers
    }


ANSWERS: dict[tuple[object, object], tuple[float, float]] = {
    (0.1, 0.01): (0.8, 0.9),
    (0.1, 0.05): (0.7, 1.5),  # best on validation records, worst on test records
    (0.01, 0.01): (0.9, 0.2),
    (0.01, 0.05): (0.95, 0.1),
    (0.1, None): (0.6, 2.0),
    (0.01, None): (0.5, 3.0),
}


def test_every_repetition_chooses_by_its_own_validation_records() -> None:
    """Those of one fold are test records of another: they must have no part in what is tested there."""
    runs = RunList(study(Figure.BASELINES, methods=("fedsrcvar",)), SIZE, Path())
    # On average over the folds 0.05 is best (0.35), but the second fold finds 0.01 better.
    validation = {(0.01, 1): 0.5, (0.01, 2): 0.3, (0.05, 1): 0.1, (0.05, 2): 0.6}
    results = {
        point.id: result(
            validation[float(str(point.settings["tradeoff"])), int(str(point.settings["repetition"]))],
            float(str(point.settings["tradeoff"])),
        )
        for point in runs.points
        if point.settings["learning_rate"] == 0.1
    }
    (mark,) = marks_of(runs, results).of(Figure.BASELINES, group_size=0.1)
    assert [one["tradeoff"] for one in mark.settings] == [0.05, 0.01]
    assert [point.settings["repetition"] for point in mark.points] == [1, 2]
    assert mark.worst("test") == Spread.of([0.05, 0.01])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(0.01, 5), min_size=4, max_size=4))
def test_no_test_risk_changes_what_is_chosen(test_risks: list[float]) -> None:
    runs = RunList(study(Figure.BASELINES, methods=("fedsrcvar",)), SIZE, Path())
    keys = [key for key in ANSWERS if key[1] is not None]
    answers = {key: (ANSWERS[key][0], risk) for key, risk in zip(keys, test_risks, strict=True)}
    (mark,) = marks_of(runs, answered(runs, answers)).of(Figure.BASELINES, group_size=0.1)
    assert [one["tradeoff"] for one in mark.settings] == [0.05, 0.05]


def test_validation_records_choose_and_failed_candidates_are_out() -> None:
    runs = RunList(study(Figure.BASELINES), SIZE, Path())
    evidence = marks_of(runs, answered(runs, ANSWERS))
    (mark,) = evidence.of(Figure.BASELINES, method="fedsrcvar", group_size=0.1)
    assert [(one["learning_rate"], one["tradeoff"]) for one in mark.settings] == [(0.1, 0.05)] * 2
    assert mark.worst("test") == Spread(1.5, 0.0)
    assert not evidence.missing
    runs = RunList(study(Figure.BASELINES), SIZE, Path())
    results = answered(runs, ANSWERS)
    best = next(each for each in runs.candidates[OURS] if each.settings["tradeoff"] == 0.05)
    del results[best.points[1].id]
    (mark,) = marks_of(runs, results).of(Figure.BASELINES, method="fedsrcvar", group_size=0.1)
    assert [one["tradeoff"] for one in mark.settings] == [0.01, 0.01]
    without = {identity: one for identity, one in results.items() if one is None}
    assert set(marks_of(runs, without).missing) == set(runs.candidates)


def told(validation: SplitRisk, *collaborators: float) -> ResultDocument:
    own = {
        str(place): CollaboratorRisk(
            n=1, mean=9.0, accuracy=1.0, validation=MeanRisk(n=1, mean=mean, accuracy=1.0), test=None
        )
        for place, mean in enumerate(collaborators)
    }
    return small(train=split(1.0), validation=validation, test=split(1.0)).model_copy(
        update={"collaborators": own}
    )


def test_methods_are_chosen_by_what_they_minimise_and_keep_every_repetition() -> None:
    # The worst tenth has 0.8 on validation records, every record 0.4, the collaborators 0.3 and 0.7.
    found, of = told(split(0.8), 0.3, 0.7), study(Figure.BASELINES)
    known = of.model_copy(update={"groups_are_collaborators": True})

    def chosen_by(method: str, tradeoff: float | None = None, within: Study = of) -> float | None:
        return own_objective(Cell(Figure.BASELINES, method, 0.1, tradeoff), within, found)

    assert chosen_by("fedsrcvar") == chosen_by("dro") == 0.8
    assert chosen_by("bpf", 0.25) == 0.75 * 0.8 + 0.25 * 0.4
    assert chosen_by("fedavg") == chosen_by("erm") == chosen_by("fedminmax") == 0.4
    assert chosen_by("fedsrcvar-excess", 0.25) is None
    measured = split(0.8).model_copy(update={"metrics": {"worst_group_excess": 0.2, "mean_excess": 0.04}})
    excess = own_objective(Cell(Figure.BASELINES, "fedsrcvar-excess", 0.1, 0.25), of, told(measured))
    assert excess == 0.75 * 0.2 + 0.25 * 0.04
    assert chosen_by("afl") == chosen_by("fedminmax", within=known) == 0.7
    runs = RunList(study(Figure.BASELINES, methods=("fedsrcvar",)), SIZE, Path())
    results = {point.id: result(0.5, float(str(point.settings["repetition"]))) for point in runs.points}
    (mark,) = marks_of(runs, results).of(Figure.BASELINES, group_size=0.1)
    assert mark.worst_values("test") == (1.0, 2.0)
    assert mark.values("test", "mean") == (0.5, 1.0)
    assert mark.worst_values("test", 0.77) == ()
