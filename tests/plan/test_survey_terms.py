"""Which plans may have a survey, and what a run of one makes."""

import pytest
from pydantic import ValidationError

from fedfair.plan.digest import canonical_plan
from fedfair.plan.schedule import DueSum, schedule_of
from fedfair.plan.survey_terms import fewest_in_survey
from fedfair.policy.disclosures import of_run
from fedfair.policy.plan_check import PolicyError, check_policy
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms
from fedfair.statistics.table import Purpose
from tests import plans

NAMES = tuple(f"clinic-{letter}" for letter in "abcde")
SURVEY = {"survey": True}
NOISE = {"noise_multiplier": 1.0}


def test_a_survey_is_the_first_sum_agreed_upon_and_allowed_by_name() -> None:
    made = list(schedule_of(plans.parsed(task={**SURVEY, "standardize": "secure"})).sums())
    assert made[:3] == [
        DueSum(Purpose.SURVEY, 0), DueSum(Purpose.STANDARDISATION, 0), DueSum(Purpose.EVALUATION, 0),
    ]  # fmt: skip
    assert Purpose.SURVEY not in schedule_of(plans.parsed()).purposes
    without, with_survey = plans.parsed(), plans.parsed(task=SURVEY)
    assert canonical_plan(without) != canonical_plan(with_survey)
    assert of_run(with_survey)["survey-sums"] == "task.survey: true"
    assert "survey-sums" not in of_run(without)
    asked = AskedTerms(plans.parsed(task=SURVEY))
    with pytest.raises(PolicyError, match=r"task.survey: true reveals survey-sums; .* -> add survey-sums"):
        check_policy(asked, SitePolicy(), "clinic-a")
    check_policy(asked, SitePolicy(reveals=(*SitePolicy().reveals, "survey-sums")), "clinic-a")


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"secure_aggregation": {"mode": "off"}}, "the aggregator would see each site's own columns"),
        ({"federation": {"min_collaborators": 2}}, "a sum may be of 2 collaborators, and 3 are the fewest"),
        (
            {"federation": {"min_collaborators": 3}, "secure_aggregation": {"colluders": 2}},
            "a sum may be of 3 collaborators, and 4 are the fewest",
        ),
        ({"privacy": {"sample_level": NOISE}}, "a sum without noise, which privacy.sample_level does not allow"),
        ({"privacy": {"collaborator_level": {**NOISE, "clip": 1.0}}}, "which privacy.collaborator_level does"),
    ],
)
def test_a_survey_of_one_site_or_record_is_refused(sections: dict[str, dict[str, object]], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        plans.parsed(NAMES, task=SURVEY, **sections)


@pytest.mark.parametrize(("colluders", "fewest"), [(0, 3), (1, 3), (2, 4), (5, 7)])
def test_who_takes_its_own_part_out_is_left_with_two_others(colluders: int, fewest: int) -> None:
    assert fewest_in_survey(colluders) == fewest
