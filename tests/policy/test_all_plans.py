"""What all plans together may ask about one set of records, beside a slow count of every request."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collaborator.site_history import SiteHistory
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.all_plans import BLOCK, AllPlans, AnsweredTotals
from fedfair.policy.refusal import Refusal
from fedfair.policy.site_config import AllPlansSection, SitePolicy
from fedfair.statistics.table import Purpose
from tests.plans import parsed

ROUNDS = 40
PLAN = parsed(training={"rounds": ROUNDS})


def asked(
    round_number: int = 1, run: str = "run-1", purpose: Purpose = Purpose.TRAINING, model: int = 0
) -> AggregationRequest:
    state = bytes([round_number, model]) * 16
    return AggregationRequest(run, False, purpose, round_number, None, state, bytes([model]) * 32, (1, 2, 3))


class Site:
    """One site with one history, about which plans ask one after the other."""

    def __init__(self, **limits: int) -> None:
        self.table: dict[bytes, bytes] = {}
        self.limits = AllPlansSection(**limits)

    def rules(self, number: int, records: str = "") -> AllPlans:
        return AllPlans(PLAN, bytes([number]) * 32, self.limits, "clinic-a", records)

    def ask(self, number: int, request: AggregationRequest, records: str = "") -> Refusal | None:
        decided = self.rules(number, records).decide(request, self.table)
        if isinstance(decided, Refusal):
            return decided
        self.table.update(decided)
        return None

    def totals(self, records: str = "") -> AnsweredTotals:
        return self.rules(1, records).totals(self.table)


def test_a_plan_after_the_other_comes_to_the_end_of_one_count() -> None:
    site = Site(rounds=100)
    for number in (1, 2):
        assert not any(site.ask(number, asked(round_number)) for round_number in range(1, ROUNDS + 1))
    assert site.totals() == AnsweredTotals(2, 80, 0)
    assert site.ask(3, asked(1)) is None
    refusal = site.ask(3, asked(BLOCK + 1))
    assert isinstance(refusal, Refusal)
    assert refusal.term == "all_plans"
    assert refusal.reason == (
        "the policy of clinic-a allows 100 rounds over all plans; it has answered 96, and this would be 112"
    )


@pytest.mark.parametrize(
    ("limits", "request_", "allowed"),
    [
        ({"plans": 2}, asked(), 2),
        ({"plans": 2}, asked(0, purpose=Purpose.STANDARDISATION), 2),
        ({"evaluations": 3}, asked(purpose=Purpose.EVALUATION), 3),
        ({"rounds": 3 * BLOCK}, asked(), 3),
    ],
)
def test_each_limit_holds_over_plans(limits: dict[str, int], request_: AggregationRequest, allowed: int) -> None:
    site = Site(**limits)
    said = [site.ask(number, request_) for number in range(1, 6)]
    assert [one is None for one in said] == [number <= allowed for number in range(1, 6)]
    # What was answered once is answered again.
    assert site.ask(1, request_) is None


def test_without_limits_nothing_is_refused_and_everything_is_counted() -> None:
    site = Site()
    for number in range(1, 9):
        assert site.ask(number, asked(run=f"run-{number}")) is None
        assert site.ask(number, asked(purpose=Purpose.EVALUATION, model=number)) is None
    assert site.totals() == AnsweredTotals(8, 8 * BLOCK, 8)


def test_records_of_another_name_have_their_own_count_and_those_without_a_name_count_for_all() -> None:
    site = Site(plans=2)
    assert site.ask(1, asked(), "heart") is None
    assert site.ask(2, asked(), "heart") is None
    assert site.ask(3, asked(), "heart") is not None
    assert site.ask(3, asked(), "stroke") is None
    assert site.ask(4, asked()) is not None, "records without a name may be those of any set"
    unnamed = Site(plans=2)
    assert unnamed.ask(1, asked()) is None
    assert unnamed.ask(2, asked(), "heart") is None
    assert unnamed.ask(3, asked(), "heart") is not None
    assert unnamed.ask(3, asked(), "stroke") is None


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, ROUNDS)), max_size=40))
def test_a_count_is_never_below_what_was_answered_and_at_most_one_block_of_a_run_above(
    requests: list[tuple[int, int, int]],
) -> None:
    site, rounds = Site(), set[tuple[int, int, int]]()
    for number, run, round_number in requests:
        assert site.ask(number, asked(round_number, f"run-{run}")) is None
        rounds.add((number, run, round_number))
    blocks = {(number, run, (round_number - 1) // BLOCK) for number, run, round_number in rounds}
    exact = sum(min(BLOCK, ROUNDS - block * BLOCK) for _, _, block in blocks)
    assert site.totals() == AnsweredTotals(len({number for number, _, _ in rounds}), exact, 0)
    assert exact >= len(rounds)


def test_a_site_keeps_the_count_on_its_disk_over_plans(tmp_path: Path) -> None:
    def history(number: int) -> SiteHistory:
        policy = SitePolicy(all_plans=AllPlansSection(rounds=ROUNDS + BLOCK))
        schema = FeatureSchema((30,), 2, tuple(range(30)))
        return SiteHistory(tmp_path / "history.sqlite", PLAN, bytes([number]) * 32, schema, policy, "clinic-a")

    first = history(1)
    assert all(first.admit(asked(round_number)) is None for round_number in range(1, BLOCK + 1))
    assert all(history(1).admit(asked(round_number)) is None for round_number in (1, 2))
    assert first.totals() == AnsweredTotals(1, BLOCK, 0)
    other = history(2)
    assert all(other.admit(asked(round_number)) is None for round_number in range(1, ROUNDS + 1))
    refused = first.admit(asked(BLOCK + 1))
    assert isinstance(refused, Refusal)
    assert refused.term == "all_plans"
