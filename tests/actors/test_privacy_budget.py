"""What a site may still release under a plan: said before anything is sent, and held to at every release."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from collaborator.ledger import Ledger
from collaborator.plain_worker import PlainWorker
from collaborator.privacy_budget import PrivacyBudget
from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import PrivacyError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.initial import ContinuedSection, InitialSection
from fedfair.plan.schema import Plan
from fedfair.policy.refusal import Refusal
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.planned_releases import planned_releases, training_release
from fedfair.privacy.releases import GaussianRelease, Unprotected
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import RecordProtection
from fedfair.wire.receiving import ReceivedRequest
from tests import bc10
from tests.actors.followed_run import FollowedRun
from tests.actors.ledger_makers import LOOK, account, config, entry, holder, plan, written
from tests.contributions import evaluation_of, standardisation_of

BUDGET = {"epsilon": 2.0, "delta": 1e-5}


def full(rounds: int = 10, every: int = 5, **protection: object) -> Plan:
    """Return a plan of full batches, which is composed in no time."""
    made = plan(rounds, every, **({"noise_multiplier": 10.0} | protection))
    return made.model_copy(update={"training": made.training.model_copy(update={"batch_size": "full"})})


def started(path: Path, of_plan: Plan, digit: str = "a", **keys: object) -> PrivacyBudget:
    return account(path, holder(of_plan, config(**keys), f"sha256:{digit * 64}"))


def until_refused(opened: PrivacyBudget, release: GaussianRelease) -> bool:
    """Record a release; return whether it was allowed."""
    try:
        opened.record(release)
    except PrivacyError:
        return False
    return True


# ------------------------------------------------------------------ before anything is sent


def test_a_plan_is_priced_before_anything_is_sent_and_pricing_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    written(path, [entry(LOOK, plan_digest="sha256:" + "b" * 64)])
    cost = epsilon(planned_releases(full(), 1000), 1e-5)
    after, spent = epsilon([*planned_releases(full(), 1000), LOOK], 1e-5), epsilon([LOOK], 1e-5)
    first, second = started(path, full(), budget=BUDGET | {"epsilon": 3.0}).forecast
    assert first == f"10 rounds of this plan cost epsilon {cost:.4g} at delta 1e-05, if no sum is repeated"
    assert second == (
        f"{spent:.4g} of epsilon 3 at delta 1e-05 is spent, {3 - spent:.4g} is left, "
        f"with this it would be {after:.4g}"
    )
    assert len(Ledger(path).look()) == 1


def test_a_plan_that_costs_more_than_a_site_allows_is_refused_with_the_figure(tmp_path: Path) -> None:
    cost = epsilon(planned_releases(full(), 1000), 1e-5)
    with pytest.raises(PrivacyError, match=f"costs this site epsilon {cost:.4g}, policy.max_epsilon is 1"):
        started(tmp_path / "ledger.sqlite", full(), policy={"max_epsilon": 1.0})
    assert started(tmp_path / "ledger.sqlite", full(), policy={"max_epsilon": 1.01 * cost}).forecast


@pytest.mark.parametrize("keys", [{"budget": BUDGET}, {"policy": {"max_epsilon": 100.0}}])
def test_a_plan_without_noise_is_refused_under_a_bound(tmp_path: Path, keys: dict[str, object]) -> None:
    with pytest.raises(PrivacyError, match="training sums of this plan carry no noise for single records"):
        started(tmp_path / "ledger.sqlite", plan(noised=False), **keys)


def test_a_site_that_only_evaluates_is_priced_for_an_evaluation_only(tmp_path: Path) -> None:
    policy = {"purposes": ["evaluation"], "max_epsilon": 0.5}
    told = started(tmp_path / "ledger.sqlite", full(), policy=policy).forecast
    assert told[0].startswith(f"an evaluation of this plan cost epsilon {epsilon([LOOK], 1e-5):.4g}")


# ------------------------------------------------------------------ at every release


def test_the_budget_ends_in_the_round_that_was_foretold_and_a_restart_is_refused(tmp_path: Path) -> None:
    path, of_plan = tmp_path / "ledger.sqlite", full(6, 6, noise_multiplier=4.0)
    opened = started(path, of_plan, budget=BUDGET)
    done, one_round = 0, training_release(of_plan, 1000)
    opened.record(LOOK)
    while until_refused(opened, one_round):
        done += 1
    assert f"it ends in round {done + 1} of 6, and this site will withdraw then" in opened.forecast[1]
    spent = [one.release for one in Ledger(path).look()]
    assert epsilon(spent, 1e-5) <= 2.0 < epsilon([*spent, one_round], 1e-5)
    with pytest.raises(PrivacyError, match="is left, with this it would be"):
        started(path, of_plan, budget=BUDGET)


def test_every_attempt_is_paid_for_and_what_one_plan_costs_is_bounded_over_restarts(tmp_path: Path) -> None:
    path, of_plan = tmp_path / "ledger.sqlite", full()
    most = {"max_epsilon": epsilon(planned_releases(of_plan, 1000), 1e-5) + 1e-3}
    for _ in range(2):
        opened = started(path, of_plan, policy=most)
        for _ in range(5):
            opened.record(training_release(of_plan, 1000))
    # Ten rounds are paid for; evaluations leave room for a few attempts more, and for no second run.
    with pytest.raises(PrivacyError, match="max_epsilon of this site allows no further training release"):
        opened.record(replace(training_release(of_plan, 1000), steps=10))
    # Another plan has a maximum of its own.
    assert started(path, of_plan, "c", policy=most).forecast


def going_on(rounds: int, earlier: str) -> Plan:
    """Return a plan whose run continues from five rounds of an earlier one."""
    made, zero = full(rounds), f"sha256:{'0' * 64}"
    continues = ContinuedSection(plans=(f"sha256:{earlier * 64}",), rounds=5, state=zero)
    initial = InitialSection(weights=zero, continues=continues)
    return made.model_copy(update={"training": made.training.model_copy(update={"initial": initial})})


def test_the_rounds_of_a_run_that_goes_on_count_with_those_before(tmp_path: Path) -> None:
    path, first = tmp_path / "ledger.sqlite", full(5)
    opened = started(path, first, "b")
    for release in planned_releases(first, 1000):
        opened.record(release)
    spent, whole = (epsilon(planned_releases(made, 1000), 1e-5) for made in (first, full(10)))
    told = started(path, going_on(10, "b"), policy={"max_epsilon": whole + 1e-6}).forecast
    assert told[0].startswith(f"10 rounds of this plan cost epsilon {whole:.4g}")
    assert told[1].startswith(f"{spent:.4g} of epsilon")
    assert told[1].endswith(f"with this it would be {whole:.4g}")
    with pytest.raises(PrivacyError, match=rf"costs this site epsilon {whole:.4g}, policy\.max_epsilon is"):
        started(path, going_on(10, "b"), policy={"max_epsilon": 0.99 * whole})
    # What another plan released is not of this run; a budget counts it all the same.
    other = started(path, going_on(10, "c"), policy={"max_epsilon": whole + 1e-6}).forecast
    assert other[1].startswith("0 of epsilon")


def test_a_run_that_goes_on_ends_where_the_budget_of_all_its_rounds_does(tmp_path: Path) -> None:
    path, first = tmp_path / "ledger.sqlite", full(5)
    opened = started(path, first, "b")
    for release in planned_releases(first, 1000):
        opened.record(release)
    longer = going_on(10, "b")
    most = {"max_epsilon": epsilon(planned_releases(full(10), 1000), 1e-5) + 1e-6}
    again, one = started(path, longer, policy=most), training_release(longer, 1000)
    done = 0
    while until_refused(again, one):
        done += 1
    # The five that are left; an evaluation that was not made leaves room for hardly more.
    assert 5 <= done <= 6


def test_another_process_of_this_site_spends_from_the_same_budget(tmp_path: Path) -> None:
    path, of_plan = tmp_path / "ledger.sqlite", full(6, noise_multiplier=4.0)
    both = [started(path, of_plan, digit, budget=BUDGET) for digit in "ab"]
    while all(until_refused(one, training_release(of_plan, 1000)) for one in both):
        pass
    spent = [one.release for one in Ledger(path).look()]
    assert epsilon(spent, 1e-5) <= 2.0 < epsilon([*spent, training_release(of_plan, 1000)], 1e-5)
    assert {one.origin.plan_digest[7] for one in Ledger(path).look()} == {"a", "b"}


def test_a_new_name_gives_no_fresh_budget_for_what_was_released_without_one(tmp_path: Path) -> None:
    path, many = tmp_path / "ledger.sqlite", GaussianRelease("training", 10.0, 1.0, 17, clip=1.0)
    written(path, [entry(many), entry(many, "2019")])
    for keys in ({}, {"data": {"name": "2019"}}):
        with pytest.raises(PrivacyError, match="allows no further"):
            started(path, full(), budget=BUDGET, **keys)
    # Of the people in 2020 only what has no name may have been released.
    assert started(path, full(1), budget=BUDGET | {"epsilon": 2.5}, data={"name": "2020"}).forecast


def test_after_a_release_without_noise_nothing_is_left_of_a_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    started(path, plan(noised=False), "b").record_unprotected(Purpose.EXACT_EVALUATION)
    assert [one.release for one in Ledger(path).look()] == [Unprotected("evaluation")]
    with pytest.raises(PrivacyError, match="no epsilon covers the evaluation sums without noise, on 2031-05-04"):
        started(path, full(), budget=BUDGET)


# ------------------------------------------------------------------ nothing leaves, and nothing is drawn


def task_of(of_plan: Plan, protection: RecordProtection) -> tuple[TrainingClient, GlobalModel]:
    splits = Splits(bc10.dataset())
    flat = flat_model(of_plan, splits.train.schema, torch.device("cpu"), Path())
    return TrainingClient(of_plan, ParticipantId("clinic-a"), splits, flat, protection=protection), GlobalModel(
        flat.vector(), 1.0
    )


def standardising(of_plan: Plan) -> Plan:
    """Return the plan with a sum of columns; their scale is of no concern here."""
    return of_plan.model_copy(update={"task": of_plan.task.model_copy(update={"standardize": "secure"})})


WORK: dict[str, Callable[[TrainingClient, GlobalModel], object]] = {
    "training": lambda task, model: task.descent.training_change(model, RoundNumber(1), 1),
    "evaluation": evaluation_of,
    "standardisation": lambda task, _: standardisation_of(task),
}


@pytest.mark.parametrize("purpose", WORK)
def test_no_noise_is_drawn_before_its_release_is_recorded_and_none_that_is_refused(purpose: str) -> None:
    said: list[str] = []

    def entropy(*_: str | int) -> int:
        said.append("drawn")
        return 7

    def recorded(release: GaussianRelease) -> None:
        said.append(release.purpose)

    def refused(_: GaussianRelease) -> None:
        raise PrivacyError("no more")

    of_plan = standardising(full()) if purpose == "standardisation" else full()
    work, model = task_of(of_plan, RecordProtection(entropy, recorded))
    WORK[purpose](work, model)
    assert said[0] == purpose
    assert "drawn" in said
    said.clear()
    work, model = task_of(of_plan, RecordProtection(entropy, refused))
    with pytest.raises(PrivacyError):
        WORK[purpose](work, model)
    assert said == []


class Refusing:
    """Has nothing that it may release."""

    scaling = None

    def contribution(self, request: object, model: object) -> object:
        del request, model
        raise PrivacyError("0.01 of /home/ledger.sqlite is left", "ask")

    def apply_scaling(self, scaling: object) -> None:
        raise NotImplementedError


async def _answered(answers: PlainWorker, question: ReceivedRequest) -> tuple[object, ...]:
    answers.sums.expect(question)
    return tuple(await answers.frames(question))


def test_the_aggregator_is_told_that_a_site_leaves_and_no_figure_or_path_of_it(tmp_path: Path) -> None:
    run = FollowedRun(tmp_path, Refusing())
    answers = PlainWorker(Refusing(), run.specs, lambda _: 1, run.follower)
    (goodbye,) = asyncio.run(_answered(answers, run.question(1)))
    answers.close()
    assert (goodbye.reason, goodbye.leaving) == (RefusalReason.BUDGET, True)
    assert "/home" in answers.sums.exit_reason.message
    assert not any(character.isdigit() or character == "/" for character in goodbye.reason.value)
    assert Refusal("busy").leaving is False
