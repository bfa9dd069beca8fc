"""The key `training.control_variates`: where it is refused, in words, and what a plan with it says of itself."""

import pytest
from pydantic import ValidationError

from fedfair.aggregation.masking_terms import guarantee
from fedfair.plan.description import summary
from fedfair.plan.digest import canonical_plan
from fedfair.policy.disclosures import of_run
from tests.plans import parsed

CORRECTED = {"rounds": 9, "local_steps": 5, "control_variates": True}
NOISE = {"sample_level": {"noise_multiplier": 1.0}}


@pytest.mark.parametrize(
    ("training", "sections", "words"),
    [
        ({"local_steps": 1}, {}, "with local_steps: 1 a correction changes no sum over all sites"),
        ({"local_steps": 1, "local_epochs": 2}, {}, "local_epochs makes a number of steps that differs"),
        ({"algorithm": "localbpf"}, {}, "localbpf has none"),
        ({}, {"privacy": NOISE}, "privacy.sample_level does not cover a site's control variate"),
        (
            {},
            {"privacy": {"collaborator_level": {"noise_multiplier": 1.0, "clip": 1.0}}},
            "privacy.collaborator_level does not cover a site's control variate",
        ),
    ],
)
def test_control_variates_are_refused_where_they_mean_nothing_or_break_a_promise(
    training: dict[str, object], sections: dict[str, dict[str, object]], words: str
) -> None:
    with pytest.raises(ValidationError) as refusal:
        parsed(training={**CORRECTED, **training}, **sections)
    faults = [fault for fault in refusal.value.errors() if fault["loc"][-1] == "control_variates"]
    assert any(words in fault["msg"] for fault in faults)


@pytest.mark.parametrize("algorithm", ["fedsrcvar", "fedavg"])
@pytest.mark.parametrize("weights", ["samples", "batch", "uniform"])
@pytest.mark.parametrize("resample", ["step", "round"])
def test_every_weight_and_every_draw_goes_with_them(algorithm: str, weights: str, resample: str) -> None:
    stated = {**CORRECTED, "algorithm": algorithm, "weights": weights, "resample": resample}
    assert parsed(training=stated).training.control_variates


def test_a_plan_says_that_it_has_them_and_what_they_show() -> None:
    plain, plan = (
        parsed(training={**CORRECTED, "control_variates": value}, federation={"min_collaborators": 2})
        for value in (False, True)
    )
    told = dict(summary(plan))
    assert "5 local steps (corrected by control variates)" in told["trains"]
    assert "in its first round, its weight again" in told["leaves a site"]
    assert of_run(plan)["update-sums"] == "training.algorithm: fedsrcvar; training.control_variates: true"
    assert "of a site that joins late and alone" in guarantee(plan)
    assert "joins late" not in guarantee(plain)
    assert b"control_variates" not in canonical_plan(plain)
    assert canonical_plan(plan) != canonical_plan(plain)
