"""Whole federations over real sockets whose sums are masked: the same model, whoever drops out."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fedfair.aggregation.masking_terms import session_terms
from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.rounds import events
from fedfair.rounds.federation import Federation as Rules
from fedfair.secagg.keys import Secret
from fedfair.wire.chunking import upload_frames
from fedfair.wire.frames import CollaboratorFrame, Refused, SecaggMessage, SumStart
from tests.interop.federation_kit import FIVE, Federation, metrics, model_files_agree, play
from tests.interop.test_streams import answered
from tests.plans import small_plan


def fixed_point_bound(workspace: Workspace) -> float:
    """Return how far the masked model may be from the simulated one after all rounds.

    One mean is off by less than e = n C W 2^-f / (sum of w) in every coordinate, f = floor(log2((2^31 - 1) / n)),
    with 569 training records as weights and the C of that round, which the metrics tell; nothing is clipped.
    Each local step of a convex, smooth objective with a step below 2 / L moves two models no further apart than
    they were, and a mean of such maps neither, so the errors of T rounds at most add up, in the Euclidean norm:
    sqrt(d + 1) times the sum of e, which bounds every coordinate too.
    """
    plan = load_plan(workspace.plan)
    terms, count = session_terms(plan), len(plan.federation.collaborators)
    bits = ((2**31 - 1) // count).bit_length() - 1
    sums = [line for line in metrics(workspace) if line["purpose"] == "training"]
    assert {line["clipped"] for line in sums} == {0}
    clips = sum(float(str(line["clip"])) for line in sums)
    parameters = 2 * 30 + 2
    return (parameters + 1) ** 0.5 * count * clips * terms.greatest_weight * 2.0**-bits / 569


@pytest.mark.parametrize(
    ("names", "terms"),
    [
        (FIVE[:3], {"mode": "malicious", "clip": 1.0}),
        (FIVE[:4], {"mode": "semi-honest", "key_agreement": "x25519-mlkem768"}),
    ],
)
def test_a_masked_run_gives_the_model_of_the_simulation(
    tmp_path: Path, names: tuple[str, ...], terms: dict[str, object]
) -> None:
    plan = small_plan(rounds=3, protection={"most_records": 512, **terms}, names=names)
    workspace = prepare(tmp_path, plan)

    async def everybody(federation: Federation) -> None:
        endings = await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))
        assert {ending.rounds for ending in endings} == {3}

    assert play(workspace, everybody).state.value == "finished"
    bound = fixed_point_bound(workspace)
    assert bound < 2e-3
    deployed, simulated = (result["traffic"] for result in model_files_agree(workspace, bound))
    assert isinstance(deployed, dict)
    assert isinstance(simulated, dict)
    # A simulation computes the masked vectors and not what sets the masks up and takes them away.
    assert deployed["bytes_up"] > simulated["bytes_up"]
    assert deployed["bytes_down"] > simulated["bytes_down"]
    lines = metrics(workspace)
    assert [line["purpose"] for line in lines[:3]] == ["standardisation", "evaluation", "training"]
    assert {line["contributors"] for line in lines} == {len(names)}


@pytest.mark.parametrize(("hidden", "precision", "beside"), [(4000, "fp64", True), (40, "fp32", False)])
def test_a_large_model_is_added_and_unmasked_beside_the_streams_and_every_site_ends_with_it_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: int, precision: str, beside: bool
) -> None:
    plan = small_plan(rounds=2, protection={"mode": "malicious", "most_records": 512}, precision=precision)
    # Large is above one mebibyte: 33 h + 2 float64 numbers.
    plan["task"] = {**plan["task"], "model": {"name": "mlp", "hidden": [hidden]}}  # type: ignore[dict-item]
    workspace = prepare(tmp_path, plan)
    threads: set[tuple[str, bool]] = set()
    receive = Rules.receive

    def watched(self: Rules, event: events.Event) -> list[events.Effect]:
        threads.add((type(event).__name__, threading.current_thread() is threading.main_thread()))
        return receive(self, event)

    monkeypatch.setattr(Rules, "receive", watched)
    assert play(workspace, Federation.everybody).state.value == "finished"
    assert {line["contributors"] for line in metrics(workspace)} == {3}
    assert (("MessageArrived", False) in threads) is beside
    assert ("Connected", False) not in threads
    models = [tmp_path / "save" / "last.safetensors", *tmp_path.glob("runs/*/*/save/last.safetensors")]
    assert len(models) == 1 + len(workspace.collaborators)
    assert len({model.read_bytes() for model in models}) == 1


def test_a_secret_that_was_erased_is_in_no_file_but_those_of_the_round_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=3, protection={"mode": "malicious", "most_records": 512}))
    erased: set[bytes] = set()
    erase = Secret.erase

    def watched(self: Secret) -> None:
        if not self.erased and len(self.reveal()) >= 32:
            erased.add(self.reveal())
        erase(self)

    monkeypatch.setattr(Secret, "erase", watched)
    looked_at: dict[str, set[bytes]] = {}

    def look() -> None:
        for path in (path for path in tmp_path.rglob("*") if path.is_file()):
            content = path.read_bytes()
            looked_at[path.name] = {secret for secret in erased if secret in content}

    async def looked_into(federation: Federation) -> None:
        sites = asyncio.create_task(federation.everybody())
        await federation.watching.until_round(2)
        # While it runs: as it closes, SQLite empties its own log.
        look()
        await sites

    assert play(workspace, looked_into).state.value == "finished"
    assert len(erased) > 50
    found = {name for name, secrets in looked_at.items() if secrets}
    assert {Path(name).suffix for name in looked_at} >= {".masks", ".secagg", ".history-wal", ".answered-wal"}
    assert {Path(name).suffix for name in found} <= {".masks", ".secagg"}, found


@pytest.mark.slow
def test_a_late_joiner_brings_a_new_session_and_is_summed_from_then_on(tmp_path: Path) -> None:
    federation = {"min_collaborators": 2}
    workspace = prepare(tmp_path, small_plan(rounds=12, federation=federation, protection={"mode": "malicious"}))

    async def third_comes_late(federation: Federation) -> None:
        assert federation.ready("clinic-c").site.participant == "clinic-c"
        held = federation.held(3, "clinic-c")
        first = [asyncio.create_task(federation.take_part(name, around=held)) for name in ("clinic-a", "clinic-b")]
        await federation.begin_with("clinic-a", "clinic-b")
        await federation.watching.until_round(3)
        await asyncio.gather(*first, federation.take_part("clinic-c"))

    assert play(workspace, third_comes_late).state.value == "finished"
    contributors = [line["contributors"] for line in metrics(workspace)]
    assert contributors[0] == 2
    assert contributors[-1] == 3


def test_a_collaborator_that_leaves_in_the_middle_returns_from_its_log(tmp_path: Path) -> None:
    plan = small_plan(rounds=4, protection={"mode": "malicious", "most_records": 512})
    workspace = prepare(tmp_path, plan)

    async def one_returns(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in ("clinic-a", "clinic-b")]
        leaving = asyncio.create_task(federation.take_part("clinic-c"))
        await federation.watching.until_round(2)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await federation.watching.until_said("clinic-c disconnected")
        await asyncio.gather(*others, federation.take_part("clinic-c"))

    assert play(workspace, one_returns).state.value == "finished"
    rounds = [line["round"] for line in metrics(workspace) if line["purpose"] == "training"]
    assert rounds == list(range(1, 5))


@pytest.mark.parametrize("federation", [{}, {"min_collaborators": 2}], ids=["all", "two of three"])
def test_a_plan_that_is_run_again_asks_for_nothing_that_could_be_opened_against_what_was_sent_before(
    tmp_path: Path, federation: dict[str, object]
) -> None:
    # A sum of all three opens for all three or for nobody, so what is the same again may be opened again for them.
    # Where two could open it, sites count attempts at round 1 over both runs, and draw other batches.
    workspace = prepare(tmp_path, small_plan(rounds=1, federation=federation, protection={"mode": "malicious"}))
    lost: list[list[str]] = []

    async def everybody(federation: Federation) -> None:
        await federation.everybody()
        lost.append([note for note in federation.watching.notes if "is lost" in note])

    assert play(workspace, everybody).state.value == "finished"
    assert play(workspace, everybody, fresh=True).state.value == "finished"
    assert lost == [[], []]


# ------------------------------------------------------------------ hostile members


def in_the_clear(asked: SumStart) -> list[CollaboratorFrame]:
    return list(upload_frames(asked.sum_number, bytes(728)))


def junk(asked: SumStart) -> list[CollaboratorFrame]:
    del asked
    return [SecaggMessage(b"\xff" * 100)]


def giant_vector(asked: SumStart) -> list[CollaboratorFrame]:
    del asked
    return [SecaggMessage(b"\x02\x07", 1 << 36)]


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (in_the_clear, "728 bytes in the clear"),
        (junk, "not a message of secure aggregation"),
        (giant_vector, "announced with 68719476736 bytes, the plan makes it"),
    ],
)
def test_a_member_that_breaks_the_masked_protocol_is_refused_and_the_others_finish(
    tmp_path: Path, attack: Callable[[SumStart], list[CollaboratorFrame]], words: str
) -> None:
    plan = small_plan(rounds=1, federation={"min_collaborators": 2}, protection={"mode": "malicious"})
    workspace = prepare(tmp_path, plan)

    async def with_an_attacker(federation: Federation) -> None:
        honest = [asyncio.create_task(federation.take_part(site)) for site in ("clinic-a", "clinic-b")]
        async with federation.dial("clinic-c") as (link, hello):
            await link.send(hello)
            for frame in attack(await answered(link, SumStart)):
                await link.send(frame)
            refused = await answered(link, Refused)
        assert words in refused.reason
        await asyncio.gather(*honest)

    assert play(workspace, with_an_attacker).state.value == "finished"
    assert {line["contributors"] for line in metrics(workspace)} == {2}
