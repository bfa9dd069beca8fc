"""What a plan may say about differential privacy, and what else in it would make that false."""

import pytest
from pydantic import ValidationError

from fedfair.plan.schema import Plan
from tests import plans

PRIVATE = plans.stated(
    ("clinic-a", "clinic-b"), training={"rounds": 5}, evaluation={"every": 5},
    privacy={"sample_level": {"noise_multiplier": 1.1}},
)  # fmt: skip
CSV: dict[str, object] = {
    "label": "died", "numeric": ["age", "weight"], "ranges": {"age": [0, 120], "weight": [0, 300]},
}  # fmt: skip


def private(**sections: dict[str, object]) -> Plan:
    return Plan.model_validate(plans.over(PRIVATE, **sections))


@pytest.mark.parametrize(
    ("sections", "place", "words"),
    [
        ({"training": {"algorithm": "afl", "server_optimizer": None}}, "training.algorithm", "reveals losses"),
        ({"training": {"resample": "round", "local_steps": 2}}, "training.resample", "drawn at random"),
        ({"training": {"precision": "fp16"}}, "training.precision", "before privacy.sample_level can clip"),
        (
            {
                "training": {"precision": "bf16"},
                "privacy": {"sample_level": {"noise_multiplier": 1, "gradients": "ghost"}},
            },
            "privacy.sample_level.gradients",
            "8 bits of bf16",
        ),
        (
            {"privacy": {"sample_level": {"noise_multiplier": 1, "gradients": "ghost", "clip": 0.04}}},
            "privacy.sample_level.clip", "multiplies squares",
        ),
        ({"training": {"compile": True}}, "training.compile", "single records"),
        ({"task": {"model": {"name": "resnet18", "norm": "batch"}}}, "task.model.norm", "mixes the records"),
        ({"evaluation": {"method": "exact"}}, "evaluation.method", "losses of single records"),
        ({"evaluation": {"site_means": True}}, "evaluation.site_means", "means of single sites"),
        ({"evaluation": {"scores": True}}, "evaluation.scores", "no noise to histograms of scores"),
        ({"task": {"standardize": "secure"}}, "task.standardize", "of no use here"),
        ({"task": {"data": {"eicu": {"folder": "eicu"}}}}, "task.standardize", "each would change all others"),
        (
            {"task": {"data": {"csv": {**CSV, "missing": "mean"}}}}, "task.standardize",
            "each would change all others",
        ),
        (
            {"task": {"data": {"csv": {**CSV, "missing_of": {"age": "mean"}}}}}, "task.standardize",
            "each would change all others",
        ),
        (
            {"task": {"standardize": "secure", "data": {"csv": {**CSV, "ranges": {"age": [0, 120]}}}}},
            "task.standardize", "and weight declare none",
        ),
        (
            {"task": {"standardize": "secure", "data": {"csv": {"label": "died", "numeric": "all"}}}},
            "task.standardize", "these data declare none",
        ),
        (
            {"privacy": {"sample_level": None, "collaborator_level": {"noise_multiplier": 1}}},
            "privacy.collaborator_level.clip", "Field required",
        ),
        ({"privacy": {"sample_level": {}}}, "privacy.sample_level.noise_multiplier", "Field required"),
        (
            {"privacy": {"sample_level": {"noise_multiplier": 0}}}, "privacy.sample_level.noise_multiplier",
            "greater",
        ),
        ({"privacy": {"sample_level": {"noise_multiplier": 1, "delta": 1}}}, "privacy.sample_level.delta", "less"),
        (
            {"privacy": {"sample_level": {"noise_multiplier": 1, "epsilon": 3}}}, "privacy.sample_level.epsilon",
            "Extra",
        ),
    ],
)  # fmt: skip
def test_false_promises_are_refused(sections: dict[str, dict[str, object]], place: str, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        private(**sections)
    faults = {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}
    assert list(faults) == [place]
    assert words in faults[place]


def test_the_noise_is_all_that_must_be_stated_and_what_may_be_beside_it() -> None:
    asked = private().privacy.sample_level
    assert asked is not None
    assert (asked.noise_multiplier, asked.clip, asked.clipping, asked.threshold_scale) == (
        1.1, 1.0, "before_weighting", 1.0,
    )  # fmt: skip
    assert (asked.delta, asked.gradients) == (1e-5, "auto")
    assert private().privacy.collaborator_level is None
    private(task={"standardize": "secure", "data": {"csv": CSV}})
    private(task={"standardize": "ranges", "data": {"csv": {**CSV, "missing": "mean"}}})
    private(task={"standardize": "ranges", "data": {"eicu": {"folder": "eicu"}}})
    private(task={"standardize": "secure", "data": {"mnist": {"folder": "mnist"}}, "model": {"name": "linear"}})
    assert private(training={"resample": "round"}).training.resample == "round"
