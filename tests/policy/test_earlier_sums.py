"""What a site has helped to open under one plan, it opens under another only for the very same sites."""

from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.answered_facts import Rows
from fedfair.policy.earlier_sums import EarlierSums
from fedfair.policy.refusal import Refusal
from fedfair.policy.site_config import SitePolicy
from fedfair.statistics.table import Purpose
from tests import plans

THREE = ("a", "b", "c")
FOUR = (*THREE, "d")
SCHEMA = FeatureSchema((2,), 2, (0, 1), ("age", "pressure"))
FIRST, SECOND = b"1" * 32, b"2" * 32
MODEL, OTHER = b"m" * 32, b"o" * 32


def plan_of(names: tuple[str, ...], **sections: plans.Section) -> Plan:
    return plans.parsed(names, task={"standardize": "secure"}, **sections)


def rules(
    table: dict[bytes, bytes],
    names: tuple[str, ...],
    digest: bytes,
    plan: Plan | None = None,
    cohort: str = "same",
) -> EarlierSums:
    policy = SitePolicy.model_validate({"earlier_cohort": cohort})
    return EarlierSums(table, plan or plan_of(names), digest, SCHEMA, policy, "a")


def asked(
    purpose: Purpose, model: bytes = MODEL, scaling: bytes = b"s" * 32, cohort: tuple[str, ...] = ()
) -> AggregationRequest:
    return AggregationRequest("run", False, purpose, 0, None, b"x" * 32, model, (), scaling, cohort)


def written(table: dict[bytes, bytes], judged: Refusal | Rows) -> None:
    assert not isinstance(judged, Refusal), judged.reason
    table.update(judged)


def test_a_model_is_evaluated_over_other_sites_under_no_other_plan() -> None:
    table: dict[bytes, bytes] = {}
    written(table, rules(table, THREE, FIRST).decide(asked(Purpose.EVALUATION)))
    for purpose in (Purpose.EVALUATION, Purpose.EXACT_EVALUATION):
        refused = rules(table, FOUR, SECOND).decide(asked(purpose))
        assert (refused.term, refused.asked, refused.allowed) == ("earlier_cohort", "a, b, c, d", "a, b, c")
    # Fewer sites are as bad as more, and so is another one in the place of one.
    for names in (("a", "b"), ("a", "b", "d")):
        assert isinstance(rules(table, names, SECOND).decide(asked(Purpose.EVALUATION)), Refusal)
    # Another model, or another scaling of the features, is another sum.
    written(table, rules(table, FOUR, SECOND).decide(asked(Purpose.EVALUATION, OTHER)))
    written(table, rules(table, FOUR, SECOND).decide(asked(Purpose.EVALUATION, scaling=b"t" * 32)))


def test_a_second_plan_over_the_same_sites_is_not_held_up() -> None:
    table: dict[bytes, bytes] = {}
    for digest in (FIRST, SECOND):
        for names in (THREE, ("c", "b", "a")):
            for purpose in (Purpose.STANDARDISATION, Purpose.EVALUATION, Purpose.TRAINING):
                written(table, rules(table, names, digest).decide(asked(purpose)))
            assert rules(table, names, digest).term() is None
    # What is known adds no row, however often it is asked.
    assert rules(table, THREE, SECOND).decide(asked(Purpose.EVALUATION)) == ()
    # Under its own plan a site's other rules decide, such as `evaluation_cohort`.
    written(table, rules(table, THREE, SECOND).decide(asked(Purpose.EVALUATION, OTHER)))
    written(table, rules(table, THREE, SECOND).decide(asked(Purpose.EVALUATION, OTHER, cohort=("a", "b"))))


def test_one_common_column_is_enough_for_a_refusal_before_the_start_and_at_the_request() -> None:
    table: dict[bytes, bytes] = {}
    written(table, rules(table, THREE, FIRST).decide(asked(Purpose.STANDARDISATION)))
    schema = FeatureSchema((2,), 2, (0, 1), ("weight", "age"))
    later = EarlierSums(table, plan_of(FOUR), SECOND, schema, SitePolicy(), "a")
    term = later.term()
    assert term.key == "earlier_cohort"
    assert (
        "the plan sums the column age over a, b, c, d; this site has helped to open it over a, b, c" in term.fault
    )
    assert "fedfair plan freeze --from" in term.change
    assert isinstance(later.decide(asked(Purpose.STANDARDISATION)), Refusal)
    for without in ({"standardize": "none"}, {"standardize": "ranges"}):
        plan = plans.parsed(FOUR, task=without)
        assert EarlierSums(table, plan, SECOND, schema, SitePolicy(), "a").term() is None


def test_a_survey_and_a_standardisation_of_one_column_are_about_the_same_values() -> None:
    table: dict[bytes, bytes] = {}
    data = {
        "csv": {"label": "y", "numeric": ["age", "pressure"], "ranges": {"age": [0, 99], "pressure": [0, 300]}}
    }
    surveyed = plans.parsed(THREE, task={"data": data, "standardize": "ranges", "survey": True})
    written(table, rules(table, THREE, FIRST, surveyed).decide(asked(Purpose.SURVEY)))
    assert rules(table, FOUR, SECOND).term() is not None


def test_slices_count_the_columns_whatever_the_model_is() -> None:
    table: dict[bytes, bytes] = {}
    sliced = {"evaluation": {"slices": {}}, "secure_aggregation": {"mode": "malicious"}}
    first = rules(table, THREE, FIRST, plans.parsed(THREE, **sliced))
    written(table, first.decide(asked(Purpose.SLICES)))
    later = rules(table, FOUR, SECOND, plans.parsed(FOUR, **sliced))
    term = later.term()
    assert term.fault.startswith("the plan sums the column age of slices over a, b, c, d;")
    assert term.change == "set evaluation.slices: null; or set policy.earlier_cohort: any"
    refused = later.decide(asked(Purpose.SLICES, OTHER))
    assert (refused.term, refused.allowed) == ("earlier_cohort", "a, b, c")
    # Training and its evaluations of another model are other sums.
    written(table, later.decide(asked(Purpose.EVALUATION, OTHER)))
    assert rules(table, THREE, SECOND, plans.parsed(THREE, **sliced)).term() is None


def test_what_was_opened_over_fewer_than_were_asked_counts_as_that() -> None:
    table: dict[bytes, bytes] = {}
    first = rules(table, FOUR, FIRST)
    written(table, first.decide(asked(Purpose.EVALUATION)))
    table.update(first.opened(first.subjects(Purpose.EVALUATION, MODEL, b"s" * 32), THREE))
    refused = rules(table, FOUR, SECOND).decide(asked(Purpose.EVALUATION))
    assert refused.allowed == "a, b, c"


def test_a_site_may_allow_it_and_noise_covers_the_difference() -> None:
    table: dict[bytes, bytes] = {}
    for purpose in (Purpose.EVALUATION, Purpose.STANDARDISATION):
        written(table, rules(table, THREE, FIRST).decide(asked(purpose)))
        written(table, rules(table, FOUR, SECOND, cohort="any").decide(asked(purpose)))
    # Whatever was allowed once is in the history all the same.
    assert rules(table, THREE, b"4" * 32).term() is not None
    noise = {"sample_level": {"noise_multiplier": 1.0, "clip": 0.5}}
    noised = plans.parsed(("a", "e"), task={"standardize": "none"}, privacy=noise)
    written(table, rules(table, ("a", "e"), b"3" * 32, noised).decide(asked(Purpose.EVALUATION)))
