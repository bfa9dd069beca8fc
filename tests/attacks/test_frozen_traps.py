"""Trap weights in the frozen part of a model: a site lets them in neither as its own run's nor by a digest."""

from pathlib import Path

import pytest

import fedfair
from collaborator.continued_run import begins_with_own_run
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.ids import ParticipantId
from fedfair.plan.digest import beginning_digest, format_digest
from fedfair.plan.initial import InitialSection
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.policy.plan_check import PolicyError, check_policy
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms
from fedfair.run.initial_model import vector_digest
from fedfair.run.saved_model import read_saved
from tests.training.test_frozen_plans import begun

SITE = ParticipantId("clinic-a")
TRAP = format_digest(bytes(range(32)))


def beginning(plan: Plan, **stated: object) -> Plan:
    initial = InitialSection.model_validate(stated)
    return plan.model_copy(update={"training": plan.training.model_copy(update={"initial": initial})})


def test_a_site_whose_own_run_had_another_frozen_part_does_not_take_it_for_its_own(tmp_path: Path) -> None:
    plan = load_plan(begun(tmp_path))
    place = tmp_path / "runs" / "run" / "save" / "last.safetensors"
    place.parent.mkdir(parents=True)
    fedfair.simulate(plan).save(place)
    held = read_saved(place)
    assert held.saved.scaling is not None
    own = {
        "weights": format_digest(vector_digest(held.saved.model.vector)),
        "scaling": format_digest(scaling_digest(held.saved.scaling)),
        "frozen": format_digest(held.layout.frozen),
    }
    # Plans by which the lead goes on from what this site's run has trained.
    honest = beginning(plan, **own)
    policy = SitePolicy(initial_weights=("own-run",))
    for asked, is_own in (
        (honest, True),
        (beginning(plan, **{**own, "frozen": TRAP}), False),
        (beginning(plan, **{**own, "frozen": None}), False),
    ):
        own_run = begins_with_own_run(tmp_path / "runs", tmp_path / "state", SITE, asked)
        assert own_run is is_own
        if is_own:
            check_policy(AskedTerms(asked, own_run=True), policy, SITE)
        else:
            with pytest.raises(PolicyError, match="of no run of which this site has a copy"):
                check_policy(AskedTerms(asked, own_run=False), policy, SITE)
    # A digest that a site has allowed is of both parts.
    stated = honest.training.initial
    assert stated is not None
    allowed = SitePolicy(initial_weights=(format_digest(beginning_digest(stated)),))
    check_policy(AskedTerms(honest), allowed, SITE)
    with pytest.raises(PolicyError, match="allows sha256:"):
        check_policy(AskedTerms(beginning(plan, **{**own, "frozen": TRAP})), allowed, SITE)
