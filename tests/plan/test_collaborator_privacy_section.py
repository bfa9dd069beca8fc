"""What a plan may ask for whole collaborators, and what would make that promise false."""

import pytest
from pydantic import ValidationError

from fedfair.plan.description import summary
from fedfair.plan.schema import Plan
from fedfair.policy.disclosures import of_run
from fedfair.policy.plan_check import check_policy
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms
from tests import plans

ASKED = {"noise_multiplier": 6.0, "clip": 0.5}


def noised(**sections: dict[str, object]) -> Plan:
    stated = plans.stated(
        task={"standardize": "ranges"},
        training={"rounds": 3, "weights": "uniform"},
        privacy={"collaborator_level": dict(ASKED)},
    )
    return Plan.model_validate(plans.over(stated, **sections))


def faults_of(**sections: dict[str, object]) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        noised(**sections)
    return {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}


@pytest.mark.parametrize(
    ("sections", "place", "words"),
    [
        ({"training": {"weights": "samples"}}, "training.weights", "how many records a site has"),
        ({"training": {"weights": "batch"}}, "training.weights", "is batch"),
        (
            {"training": {"algorithm": "afl", "server_optimizer": None}}, "training.algorithm",
            "more than sums of clipped changes",
        ),
        ({"training": {"threshold_init": "quantile"}}, "training.threshold_init", "no evaluation sums"),
        ({"task": {"standardize": "secure"}}, "task.standardize", "sum of columns carries no noise"),
        ({"evaluation": {"method": "exact"}}, "evaluation.method", "no evaluation sums"),
        ({"evaluation": {"site_means": True}}, "evaluation.site_means", "no evaluation sums"),
        ({"evaluation": {"scores": True}}, "evaluation.scores", "no evaluation sums"),
        ({"secure_aggregation": {"mode": "off"}}, "secure_aggregation.mode", "one site's share alone"),
        ({"secure_aggregation": {"clip": 2.0}}, "secure_aggregation.clip", "clips by its own norm"),
        (
            {"privacy": {"sample_level": {"noise_multiplier": 1}}}, "privacy.collaborator_level",
            "cannot be combined with privacy.sample_level",
        ),
        ({"privacy": {"collaborator_level": ASKED | {"clip": 0}}}, "privacy.collaborator_level.clip", "greater"),
        ({"privacy": {"collaborator_level": ASKED | {"delta": 1}}}, "privacy.collaborator_level.delta", "less"),
        (
            {"privacy": {"collaborator_level": ASKED | {"epsilon": 3}}}, "privacy.collaborator_level.epsilon",
            "Extra",
        ),
    ],
)  # fmt: skip
def test_false_promises_are_refused(sections: dict[str, dict[str, object]], place: str, words: str) -> None:
    faults = faults_of(**sections)
    assert list(faults) == [place]
    assert words in faults[place]


def test_promises_that_are_true_are_taken_and_all_faults_told_together() -> None:
    level = noised().privacy.collaborator_level
    assert level is not None
    assert (level.noise_multiplier, level.clip, level.delta) == (6.0, 0.5, 1e-5)
    noised(task={"data": {"mnist": {"folder": "mnist"}}, "standardize": "secure"})
    found = faults_of(
        training={"weights": "samples"}, task={"standardize": "secure"}, evaluation={"method": "exact"}
    )
    assert list(found) == ["training.weights", "evaluation.method", "task.standardize"]


def test_what_noise_there_is_is_said_and_a_site_holds_the_clip_against_its_own() -> None:
    words = dict(summary(noised()))
    assert "of every collaborator: noise multiplier 6 in each training sum" in words["differential privacy"]
    assert words["evaluates"].startswith("nothing")
    assert "histogram" not in words["leaves a site"]
    policy = SitePolicy(purposes=("training",), reveals=("update-sums",))
    check_policy(AskedTerms(noised(), None), policy, "clinic-a")
    assert set(of_run(noised())) == {"update-sums"}
    with pytest.raises(Exception, match=r"privacy.collaborator_level.clip: 0.5; this site's policy allows 0.1"):
        check_policy(AskedTerms(noised(), None), SitePolicy(max_clip=0.1), "clinic-a")
