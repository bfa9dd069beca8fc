"""Every way in which a site takes no part, with any records, models and sizes: what leaves it has no data in it.

A site says why in one of two ways: an abstention from a sum, or an abstention from the run. Both carry a reason of
a closed list. The properties drive both with faults whose words are full of numbers, and real tasks under masks.
"""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collaborator.masked_worker import _refusal
from collaborator.plain_worker import PlainWorker
from collaborator.withdrawal import abstention_reason
from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.masked_encoding import header_parts, sum_shapes
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.errors import FedfairError, PrivacyError, RemoteProtocolError, TrainingError
from fedfair.ids import ParticipantId, RoundNumber, SumNumber
from fedfair.plan.derived import greatest_weight
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.refusal import Refusal
from fedfair.policy.refusal_reasons import RefusalReason, reason_for
from fedfair.policy.terms import Term
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.fixedpoint import BodyCode
from fedfair.secagg.keys import Secret
from fedfair.secagg.masking import SignedSeed, Update, masked_vector
from fedfair.secagg.sum_check import Tagging, check_of
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.masked_update import header_update, training_update
from fedfair.wire.codec import encode_collaborator_frame
from fedfair.wire.frames import Abstain
from tests import plans
from tests.actors.followed_run import FollowedRun
from tests.trees import called, nodes

NAME = ParticipantId("clinic-a")
WORDS = st.text(st.characters(codec="utf-8"), max_size=80) | st.floats().map(str) | st.integers().map(str)
EVERYTHING = st.floats(width=64) | st.sampled_from([np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 5e-324])


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def faults() -> st.SearchStrategy[FedfairError]:
    terms = st.builds(Term, st.sampled_from(["max_rounds", "reveals", "new_term"]), WORDS, WORDS, WORDS, WORDS)
    return st.one_of(
        st.builds(PrivacyError, WORDS, WORDS),
        st.builds(RemoteProtocolError, WORDS, WORDS),
        st.builds(SecaggError, st.sampled_from(Check), WORDS, WORDS),
        st.builds(PolicyError, WORDS, st.lists(terms, min_size=1, max_size=3).map(tuple)),
    )


@given(faults(), faults())
def test_leaving_the_run_says_nothing_but_a_reason(one: FedfairError, other: FedfairError) -> None:
    assert abstention_reason(one) in RefusalReason
    same_check = not isinstance(one, SecaggError) or (isinstance(other, SecaggError) and one.check is other.check)
    if type(one) is type(other) and same_check and not isinstance(one, PolicyError):
        # The same kind of fault, or the same check, with other words in it is told alike.
        assert abstention_reason(one) is abstention_reason(other)


@given(
    st.sampled_from(["", "values", "budget", "max_runs", "secure aggregation: tag", "a new term"]), WORDS, WORDS
)
def test_leaving_a_sum_says_nothing_but_a_reason_free_of_the_words(term: str, words: str, value: str) -> None:
    told = reason_for(Refusal(words, term, value, value).term)
    assert told in RefusalReason
    assert told is reason_for(term)
    assert not any(character.isdigit() for character in told.value)


class Failing:
    """A task that fails in words about its records."""

    scaling = None

    def __init__(self, fault: FedfairError) -> None:
        self._fault = fault

    def contribution(self, request: SumRequest, model: GlobalModel) -> Contribution:
        del request, model
        raise self._fault

    def apply_scaling(self, scaling: object) -> None:
        raise NotImplementedError


@given(WORDS, st.booleans())
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_plain_sum_that_a_site_cannot_add_to_is_left_so(tmp_path: Path, words: str, budget: bool) -> None:
    task = Failing(PrivacyError(words) if budget else TrainingError(words))
    run = FollowedRun(tmp_path, task)
    answers, question = PlainWorker(task, run.specs, lambda _: 1, run.follower), run.question(1)
    answers.sums.expect(question)
    refused = answers._compute(question)
    answers.close()
    assert reason_for(refused.term) is (RefusalReason.BUDGET if budget else RefusalReason.VALUES)


# ------------------------------------------------------------------ real tasks under masks


def plan_of(model: dict[str, object], precision: str) -> Plan:
    return plans.parsed(
        task={"model": model, "standardize": "none"},
        objective={"worst_group_size": 0.3, "tradeoff": 0.1},
        training={"rounds": 3, "batch_size": 4, "local_steps": 2, "precision": precision, "device": "cpu"},
        secure_aggregation={"mode": "malicious", "most_records": 64},
        evaluation={"group_sizes": [0.3], "bins": 16, "method": "exact"},
    )


def updates_of(
    plan: Plan, data: Dataset, model: GlobalModel, task: TrainingClient
) -> Iterator[tuple[Purpose, Update]]:
    counts = header_parts(plan, data.schema)
    change = task.summable_change(model, RoundNumber(1), 1)
    assert change is not None
    yield Purpose.TRAINING, training_update(change)
    specs = sum_specs(plan, task.layout, data.schema)
    for purpose in (Purpose.EVALUATION, Purpose.EXACT_EVALUATION):
        query = QUERY if purpose is Purpose.EXACT_EVALUATION else None
        request = SumRequest(purpose, RoundNumber(0), 1, specs[purpose], query)
        yield purpose, header_update(task.contribution(request, model), counts[purpose])


QUERY = QueryStep(1, ())
SEED = [SignedSeed(Secret(bytes(31)), negative=False)]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 12),
    values=st.lists(st.floats(-1e300, 1e300), min_size=24, max_size=24),
    weights=st.lists(EVERYTHING.filter(np.isfinite), min_size=40, max_size=40),
    threshold=st.floats(0.0, 1.7e308),
    hidden=st.sampled_from([(), (3,)]),
    precision=st.sampled_from(["fp64", "fp32"]),
)
def test_a_masked_contribution_has_the_same_form_whatever_the_records_the_model_and_the_sizes_are(
    tmp_path: Path,
    count: int,
    values: list[float],
    weights: list[float],
    threshold: float,
    hidden: tuple[int, ...],
    precision: str,
) -> None:
    stated = {"name": "mlp", "hidden": list(hidden)} if hidden else {"name": "linear", "init": "zeros"}
    plan, schema = plan_of(stated, precision), FeatureSchema((2,), 2, (0, 1))
    data = Dataset(np.array(values[: 2 * count]).reshape(count, 2), np.arange(count) % 2, schema)
    flat = flat_model(plan, schema, torch.device("cpu"), tmp_path)
    with np.errstate(all="ignore"):
        vector = np.resize(np.array(weights), flat.layout.dimension).astype(flat.layout.dtype)
        vector[~np.isfinite(vector)] = np.finfo(vector.dtype).max
        task = TrainingClient(plan, NAME, Splits(data), flat, masked=True)
        shapes = sum_shapes(plan, flat.layout, schema)
        for purpose, update in updates_of(plan, data, GlobalModel(vector, threshold), task):
            shape = shapes[purpose.value]
            clips = (1.0,) * len(shape.groups)
            code = BodyCode(32, 3, greatest_weight(plan), shape.groups, clips)
            # It does not raise, and is as long as the plan says.
            tagging = Tagging(check_of(Secret(bytes(range(32))), shape), 1)
            made, _ = masked_vector(update, shape, code, SEED, Secret(bytes(32)), 1, tagging)
            assert len(made) == shape.vector_bytes(32)


# ------------------------------------------------------------------ the structure


def test_abstentions_are_made_in_the_collaborator_only_and_from_the_list_only() -> None:
    """Every place that makes an abstention takes its reason from `reason_for`, `abstention_reason` or the list."""
    found, accused = [], []
    for place, name, node in called():
        package = place.partition("/")[0]
        if name == "Abstain" and package in {"collaborator", "aggregator"}:
            found.append((package, ast.unparse(node.args[1])))
            accused += [ast.unparse(one) for one in node.args[3:]]
            accused += [ast.unparse(one.value) for one in node.keywords if one.arg == "accused"]
    assert found
    assert {package for package, _ in found} == {"collaborator"}
    assert {reason for _, reason in found} <= {
        "reason_for(refusal.term)", "reason_for(answer.term)", "reason_for(self.sums.refused.term)", "reason",
    }  # fmt: skip
    assert set(accused) == {"refusal.accused"}
    assert inspect.signature(abstention_reason).return_annotation == "RefusalReason"


def test_nobody_is_accused_but_by_the_code_that_opens_envelopes() -> None:
    """Every fault that accuses a member is raised where its envelope is opened, which has no record at hand."""
    accusing = {(place, ast.unparse(node.value)) for place, node in nodes(ast.keyword) if node.arg == "accused"}
    inside = {(place, what) for place, what in accusing if place.startswith(("fedfair/secagg/", "collaborator/"))}
    assert {one for one in inside if one[0] != "fedfair/secagg/checks.py"} == {
        ("fedfair/secagg/sealing.py", "sender"), ("collaborator/masked_worker.py", "fault.accused"),
    }  # fmt: skip


@given(st.sampled_from(Check), WORDS, WORDS, st.integers(1, 200))
def test_what_is_said_beside_an_accusation_has_no_words(
    check: Check, words: str, other: str, accused: int
) -> None:
    one, two = (_refusal(SecaggError(check, text, text, accused=accused), text) for text in (words, other))
    assert (one.term, one.accused, one.leaving, one.accused) == (two.term, two.accused, two.leaving, accused)
    assert _refusal(TrainingError(words), words).accused == 0


@given(st.sampled_from(RefusalReason), st.sampled_from(RefusalReason), st.integers(1, 2**63 - 1))
def test_two_abstentions_from_one_sum_differ_in_a_byte(
    one: RefusalReason, other: RefusalReason, number: int
) -> None:
    sent, instead = (encode_collaborator_frame(Abstain(SumNumber(number), reason)) for reason in (one, other))
    assert len(sent) == len(instead)
    assert sum(mine != yours for mine, yours in zip(sent, instead, strict=True)) == (one is not other)
