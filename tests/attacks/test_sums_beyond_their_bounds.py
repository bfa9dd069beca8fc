"""A lying site that sends what no honest site sends: any element of the ring, at weight 1, under its own mask.

Nobody can look at one contribution. What is opened must lie where honest contributions can be, or nothing of it is
applied; what lies there moves the model and the threshold by a bounded step.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aggregator.outcome import Ending
from collaborator.ledger import Ledger
from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import LocalProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.derived import threshold_limit
from fedfair.plan.loading import load_plan
from fedfair.run.replica import OutOfStepError
from fedfair.secagg.effects import RoundAborted, Send
from fedfair.secagg.fixedpoint import BodyCode, fraction_bits
from fedfair.secagg.masking import Update, masked_vector
from fedfair.secagg.round_messages import Upload
from fedfair.secagg.shape import COUNTED, SIZE_BUCKETS, TAG_LIMBS, SumShape
from fedfair.secagg.signing import sign
from fedfair.secagg.vector_digest import vector_digest
from fedfair.statistics.table import Purpose
from fedfair.terms.local_change import LocalChange
from fedfair.training.client import TrainingClient
from tests.attacks.harness import Lies
from tests.attacks.test_policy_at_the_round import EVERY, ROUNDS, Liar, answered, refused
from tests.contributions import standardisation_of
from tests.interop.federation_kit import NAMES, Federation, metrics, play
from tests.plans import small_plan
from tests.secagg.federation_in_memory import signing_key

FIRST_OWN = COUNTED + 1 + SIZE_BUCKETS + TAG_LIMBS


def opened_with(lies: Lies, word: int, delta: int) -> RoundAborted | None:
    """Run a round in which member 1 adds `delta` to a word of its masked vector; the masks hide that it does.

    Args:
        lies: in a session.
        word: place in the header; counted from its end in the body, from 1 on.
        delta: in steps of the ring.
    """
    shape = lies.shapes["training"]
    lies.updates = lies.fresh_updates()
    effects = lies.server.start_round("training", lies.model, (1.0,), lies.roster.indices)
    lies.opened, lies.aborted = None, None
    replies = []
    for effect in effects:
        (send,) = lies.carry_out(effect.member, lies.hand_over(effect.member, effect.message))
        if effect.member == 1:
            vector, words = bytearray(send.vector), shape.masked_header_length()
            if word < words:
                part = np.frombuffer(vector, np.uint64, words)
                part[word : word + 1] += np.uint64(delta % 2**64)
            else:
                part = np.frombuffer(vector, np.uint32, offset=shape.header_bytes())
                part[word - words : word - words + 1] += np.uint32(delta % 2**32)
            lie = replace(Upload.decode(send.message), vector_digest=vector_digest(vector))
            signature = sign(signing_key(1), "upload", *lie.signed_fields())
            send = Send(replace(lie, signature=signature).encode(), vector)
        replies += lies.server.receive(effect.member, send.message, send.vector)
    lies.deliver(replies)
    return lies.aborted


def test_an_honest_sum_is_opened() -> None:
    lies = Lies.in_session()
    assert opened_with(lies, FIRST_OWN, 0) is None
    assert lies.opened is not None


@pytest.mark.parametrize("sign_of", [1, -1])
def test_a_body_beyond_the_clip_times_the_weights_is_not_opened(sign_of: int) -> None:
    lies = Lies.in_session()
    members, start = lies.members, lies.shapes["training"].masked_header_length()
    one = 1 << fraction_bits(32, members)
    # Unit updates of weight 1 with W >= 1: what every member may add is members * one / W, and a step for each.
    allowed = members * one // lies.terms.greatest_weight + members
    aborted = opened_with(lies, start + 2, sign_of * (allowed + one))
    assert "times as large as the clip and the weights allow" in aborted.reason
    assert lies.opened is None
    # The attempt is lost and no more: the next one is opened.
    assert opened_with(lies, start + 2, 0) is None
    assert lies.opened is not None


@pytest.mark.parametrize(
    ("word", "words"),
    [(0, "weight"), (1, "contributors"), (2, ""), (3, ""), (COUNTED, ""), (COUNTED + 4, ""), (FIRST_OWN, "")],
    ids=["weight", "contributors", "replaced", "sites", "clipped", "sizes", "a value of the site's own"],
)
def test_a_header_value_beyond_what_the_contributors_can_have_is_not_opened(word: int, words: str) -> None:
    # 640 in the steps of a header value: beyond the 500 that five contributors may have, whatever 50 they add.
    for delta in (5 << 60, -(5 << 60)):
        lies = Lies.in_session()
        aborted = opened_with(lies, word, delta)
        assert aborted is not None, (word, delta)
        assert words in aborted.reason or "sum" in aborted.reason
        assert lies.opened is None


# ------------------------------------------------------------------ the threshold, over real sockets

STATED = 1e13
MASKED = {"mode": "malicious", "most_records": 512}


LIE = 7777
"""The number of replaced values by which a test knows the liar's update where it is masked."""


class Boasting:
    """A site's task that states a change of the threshold in the first so many attempts at round 1."""

    def __init__(self, task: TrainingClient, times: int) -> None:
        self._task = task
        self._times = times

    def __getattr__(self, name: str) -> object:
        return getattr(self._task, name)

    def summable_change(self, model: GlobalModel, number: RoundNumber, attempt: int) -> LocalChange | None:
        change = self._task.summable_change(model, number, attempt)
        assert change is not None
        if number > 1 or attempt > self._times:
            return change
        return replace(change, threshold=STATED, replaced=LIE)


def with_a_liar(workspace: Workspace, times: int) -> tuple[Ending, list[str], list[float]]:
    """Run a federation with one liar; return how it ended, what was told, and every threshold after training."""

    async def scenario(federation: Federation) -> None:
        liar = federation.ready("clinic-c")
        federation.sites["clinic-c"] = replace(liar, task=Boasting(liar.task, times))  # type: ignore[arg-type]
        sites = [asyncio.create_task(federation.take_part(name)) for name in NAMES]
        # A run that is aborted may be continued, so its sites would call again for ever.
        await asyncio.wait([federation.serving])
        for site in sites:
            site.cancel()
        await asyncio.gather(*sites, return_exceptions=True)
        notes.extend(federation.watching.notes)

    notes: list[str] = []
    ending = play(workspace, scenario)
    sums = [line for line in metrics(workspace) if line["purpose"] == "training"]
    return ending, notes, [float(str(line["threshold"])) for line in sums]


def masking_anything(
    update: Update,
    shape: SumShape,
    code: BodyCode,
    *rest: Any,  # noqa: ANN401 - handed on as it is
) -> tuple[bytearray, bytes]:
    """Mask an update as honest software does, and let a liar add a quarter of the ring to its threshold."""
    vector, vector_hash = masked_vector(update, shape, code, *rest)
    if update.replaced != LIE:
        return vector, vector_hash
    np.frombuffer(vector, np.uint64, shape.masked_header_length())[FIRST_OWN : FIRST_OWN + 1] += np.uint64(1 << 62)
    return vector, vector_digest(vector)


def test_a_huge_change_of_the_threshold_counts_for_the_loss_range_at_most(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=4, protection=MASKED))
    limit = threshold_limit(load_plan(workspace.plan), 2)
    ending, _, thresholds = with_a_liar(workspace, 1)
    assert (ending.state.value, len(thresholds)) == ("finished", 4)
    first = next(line for line in metrics(workspace) if line["purpose"] == "training")
    assert first["replaced_values"] == LIE + 1
    assert all(0.0 <= threshold <= 1.0 + limit for threshold in thresholds), thresholds


@pytest.mark.parametrize("times", [1, 3], ids=["once", "in every attempt"])
def test_a_ring_element_that_no_honest_site_sends_costs_an_attempt_and_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=4, protection=MASKED))
    limit = threshold_limit(load_plan(workspace.plan), 2)
    monkeypatch.setattr("fedfair.secagg.client.masked_vector", masking_anything)
    ending, notes, thresholds = with_a_liar(workspace, times)
    lost = [note for note in notes if "is lost" in note]
    assert len(lost) == times
    assert all("would move the threshold by" in note or "a header value of the sum" in note for note in lost)
    assert all(0.0 <= threshold <= 1.0 + limit for threshold in thresholds), thresholds
    # A liar that never stops ends the run, in words; the model is that of the last good sum.
    assert (ending.state.value, len(thresholds)) == (("finished", 4) if times == 1 else ("aborted", 0))


# ---- an aggregator that asks for sums when the plan makes none, or for one noised answer again and again
# Noise is scaled to what the plan declares about the records, and its price is told from what the plan makes due.

TRAINING, EVALUATION, STANDARDISATION = Purpose.TRAINING, Purpose.EVALUATION, Purpose.STANDARDISATION
NOISE = {"sample_level": {"noise_multiplier": 4.0}}

Made = Callable[..., Liar]


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workspace]:
    torch.set_num_threads(1)
    made = {}
    for standardize, privacy in (("secure", {}), ("none", {}), ("none", NOISE)):
        plan = small_plan(rounds=ROUNDS)
        task, evaluation = plan["task"], plan["evaluation"]
        assert isinstance(task, dict)
        plan |= {"task": {**task, "standardize": standardize}, "evaluation": {**evaluation, "every": EVERY}}
        name = "noised" if privacy else standardize
        made[name] = prepare(tmp_path_factory.mktemp(name), plan | {"privacy": privacy})
    return made


@pytest.fixture
def liar_under(workspaces: dict[str, Workspace], tmp_path: Path) -> Iterator[Made]:
    made: list[Liar] = []

    def under(name: str, **policy: object) -> Liar:
        made.append(Liar(workspaces[name], tmp_path, policy))
        return made[-1]

    yield under
    for liar in made:
        liar.answers.close()


@pytest.mark.parametrize("plan", ["none", "noised"])
def test_columns_are_summed_only_under_a_plan_that_standardises(liar_under: Made, plan: str) -> None:
    """Without a range a column has no scale, and noise for it would protect nobody, whatever the ledger says."""
    site = liar_under(plan)
    with pytest.raises(OutOfStepError, match="a state at standardisation after 0 rounds was sent, which no run"):
        site.ask(STANDARDISATION, 0)
    # What computes refuses too: it is the last that could.
    with pytest.raises(LocalProtocolError, match="columns are never summed"):
        standardisation_of(site.ready.task)


def test_columns_are_summed_before_the_first_round_and_never_again(liar_under: Made) -> None:
    site = liar_under("secure")
    assert answered(site.ask(STANDARDISATION, 0))
    with pytest.raises(OutOfStepError, match="a state at standardisation after 1 rounds was sent, which no run"):
        site.ask(STANDARDISATION, 1)


@pytest.mark.parametrize("columns", [30, 29])
def test_features_are_scaled_only_under_a_plan_that_standardises(liar_under: Made, columns: int) -> None:
    scaling = FeatureScaling(np.zeros(columns), np.full(columns, 1e300))
    sites = {plan: liar_under(plan) for plan in ("none", "secure")}
    for plan, site in sites.items():
        scaled = replace(site.state(TRAINING, 1), scaling=scaling)
        site.state = lambda *_, scaled=scaled: scaled  # type: ignore[method-assign]
        if plan == "secure" and columns == 30:
            assert answered(site.ask(TRAINING, 1))
            continue
        with pytest.raises(OutOfStepError, match="which no run of this plan reaches"):
            site.ask(TRAINING, 1)
    # What computes refuses too: it is the last that could.
    with pytest.raises(LocalProtocolError, match="nothing scales its features"):
        sites["none"].ready.task.apply_scaling(FeatureScaling(np.zeros(30), np.ones(30)))


def test_the_same_question_has_another_noise_each_time_and_so_counts_each_time(liar_under: Made) -> None:
    site = liar_under("noised", max_attempts=3)
    for _ in range(3):
        assert answered(site.ask(TRAINING, 1))
        site.restart()
    assert refused(site.ask(TRAINING, 1)) == ("max_attempts", "attempt 4", "at most 3")
    assert len(Ledger(site.ready.site.ledger_file).look()) == 3


def test_a_saved_model_is_not_judged_again_and_again_until_the_noise_averages_out(liar_under: Made) -> None:
    site = liar_under("noised", max_attempts=3)
    for run in range(3):
        assert answered(site.ask(EVALUATION, run, run=run, on_demand=True))
        site.restart()
    assert refused(site.ask(EVALUATION, 3, run=3, on_demand=True)) == ("max_attempts", "attempt 4", "at most 3")
    assert answered(site.ask(EVALUATION, 3, run=3, bit=1, on_demand=True)), "another model"


def test_runs_under_noise_are_limited_as_masked_ones_are(liar_under: Made) -> None:
    site = liar_under("noised")
    for run in range(3):
        assert answered(site.ask(TRAINING, 1, run=run))
    assert refused(site.ask(TRAINING, 1, run=3)) == ("max_runs", "run 4", "at most 3")
