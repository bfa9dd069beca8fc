"""Does the plan begin with what this site saw an earlier run end with?

A plan that extends a run names the digest of a state. Whoever made the plan could name another one: an earlier
round, or weights of its own. A site that took part computes the digest from its own copy of that run, and refuses
any other. Where whole collaborators are protected, it compares the attempts that were given up as well. A site
that did not take part has nothing to compare with: its policy names what the plan begins with, or it refuses.

A new run may begin with the model of an earlier one. A site that has a copy of that run knows its weights,
scaling, threshold and sites, and compares all of them.

What a site keeps between rounds (control variates, a threshold of its own) stays where the earlier run left it,
and is looked up there.

The folder in which a site keeps its control variates between two starts: `state/<name>-<plan>.variates/`.

One file for each round whose variate may still be counted: the last round that counted this site, the one before
it, and the round under way. A file is on the disk before what it belongs to is sent. Which of them counts is
decided by the state of the run, so nothing is ever moved or marked. A file of another run is none.

    16 bytes of a mark, SHA-256 of the rest (32), run id (32), round and weight (8 each), threshold (8),
    vector (8 for each entry); little-endian
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from collaborator.plan_change import state_stem
from collaborator.run_store import RunStore
from collaborator.site_history import ANSWERED
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.errors import ApprovalError, DataError, StateError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan import derived
from fedfair.plan.description import TRAP_WEIGHTS
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.plan.initial import InitialSection
from fedfair.plan.schema import Plan
from fedfair.policy.request_limits import answers_in_round
from fedfair.run.continuing import going_on, state_digest
from fedfair.run.initial_model import (
    InitialModel,
    initial_model_file,
    read_initial_model,
    state_file,
    vector_digest,
)
from fedfair.run.progress import FinalStage
from fedfair.run.reference_file import own_references
from fedfair.run.rules import RunRules
from fedfair.run.saved_model import DescribedModel, read_saved, sites_digest
from fedfair.run.state import RunState
from fedfair.store.long_vectors import IN_MEMORY
from fedfair.store.table_file import TableFile
from fedfair.terms.kept import NEVER, round_of

if TYPE_CHECKING:
    from fedfair.terms.kept import KeptVariate
    from fedfair.training.binding import PlanBinding


import hashlib
import struct
from collections.abc import Iterator

import numpy as np

from fedfair.store.atomic_file import OWNER_ONLY, replace_file
from fedfair.store.disk import writing
from fedfair.terms.kept import KeptVariate, Variate, staying_rounds

_MARK = b"fedfair variate\n"
_DIGEST_BYTES = 32
_HEAD = struct.Struct("<32sQQd")
"""Run id, round, weight, threshold."""

_VECTOR = np.dtype("<f8")


class VariateStore:
    """The kept variates of one site under one plan; one process uses the folder at a time.

    Args:
        folder: where they are; made with the first of them.
        dimension: of what is kept; None for any.
        run_id: returns the run that this site takes part in, as 32 characters.
        earlier: returns what is kept for a round of the runs before it, or None.
    """

    def __init__(
        self,
        folder: Path,
        dimension: int | None,
        run_id: Callable[[], str],
        earlier: Callable[[RoundNumber], KeptVariate | None] = lambda _: None,
    ) -> None:
        self._folder, self._dimension, self._run_id, self._earlier = folder, dimension, run_id, earlier

    def found(self, number: RoundNumber) -> KeptVariate | None:
        """Return what was kept for a round; None where nothing sound is.

        Raises:
            StateError: this user may not read the file, or the disk cannot.
        """
        return self._found_here(number) or self._earlier(number)

    def _found_here(self, number: RoundNumber) -> KeptVariate | None:
        path = self._path(number)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(
                f"{path} cannot be read: {error.strerror or error}", "let this user read it, and start again"
            ) from error
        body = raw[len(_MARK) + _DIGEST_BYTES :]
        length, odd = divmod(len(body) - _HEAD.size, _VECTOR.itemsize)
        if raw != _whole(body) or length < 0 or odd or self._dimension not in (None, length):
            return None
        run_id, kept_for, weight, threshold = _HEAD.unpack_from(body)
        if (run_id, kept_for) != (self._run_id().encode("ascii"), number):
            return None
        vector = np.frombuffer(body, _VECTOR, offset=_HEAD.size).astype(np.float64)
        return KeptVariate(Variate(vector, threshold), weight)

    def keep(self, number: RoundNumber, kept: KeptVariate, counted: RoundNumber) -> None:
        """Keep a variate for a round; it is on the disk when this returns.

        Args:
            number: the round.
            kept: the variate that follows from what the site is about to add.
            counted: the round whose variate the run counts now.

        Raises:
            FedfairError: it cannot be written; what was there is as it was.
        """
        head = _HEAD.pack(self._run_id().encode("ascii"), number, kept.weight, kept.variate.threshold)
        body = head + kept.variate.vector.astype(_VECTOR).tobytes()
        with writing(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path(number), [_whole(body)], OWNER_ONLY)
            rounds = list(self._rounds())
            staying = {number, *staying_rounds(rounds, number, counted)}
            for past in set(rounds) - staying:
                self._path(past).unlink(missing_ok=True)

    def _path(self, number: RoundNumber) -> Path:
        return self._folder / f"{int(number):010d}"

    def _rounds(self) -> Iterator[RoundNumber]:
        return (RoundNumber(int(path.name)) for path in self._folder.iterdir() if path.name.isdigit())


def _whole(body: bytes) -> bytes:
    return _MARK + hashlib.sha256(body).digest() + body


_SAYS_SAME_SITES = (
    "ask the lead to freeze the plan again with `fedfair plan freeze --from`, or to remove same_sites from "
    "plan.initial.yaml: the sums of two sets of sites can be subtracted"
)
_ANSWERED = ".answered"
_ENDINGS = (".run", _ANSWERED, ".secagg", ".variates")
"""Files of a site that has taken part in a run; their names begin with the site and the plan."""


Before: TypeAlias = "PlanBinding | InitialModel"
"""The plan before round 1, as this site makes it or as the files beside the plan say."""


def begins_with_own_run(runs: Path, state_folder: Path, participant: ParticipantId, plan: Plan) -> bool:
    """Return whether a plan begins with what this site's own copy of a run ended with; no code of it is run.

    So do the references that it takes; they alone, where its seed makes the weights.

    Args:
        runs: the folder of this site's own copies of runs.
        state_folder: of this site.
        participant: the site.
        plan: the plan.

    Raises:
        FedfairError: as `saw_the_end`; or the plan says that this site has evaluated what it does not know.
    """
    stated, named = plan.training.initial, derived.given_references(plan)
    known = named is not None and own_references(runs, named) is not None
    if stated is None or (named is not None and not known):
        return known
    if stated.continues is not None:
        # A plan that was read from no file has no state beside it, and begins nowhere.
        if plan.file is None:
            return False
        return saw_the_end(state_folder, participant, plan, read_initial_model(plan.file, plan))
    return _own_model(runs, participant, plan, stated) is not None


def saw_the_end(state_folder: Path, participant: ParticipantId, plan: Plan, before: Before) -> bool:
    """Compare the state that a plan continues from with this site's own copy of the earlier run.

    Args:
        state_folder: of this site.
        participant: the site.
        plan: the plan.
        before: what the plan is bound to.

    Returns:
        Whether this site saw the earlier run end in this state; not where it took no part, or the plan continues
        from no run.

    Raises:
        ApprovalError: this site's copy ended in another state, or it has answered more often than the plan says.
        StateError: this site took part, and has no copy, or one that did not see the end.
        PlanError: the state that the plan names cannot be used.
    """
    stated = plan.training.initial
    if stated is None or stated.continues is None:
        return False
    begun = RunRules(plan, before.layout, before.schema, room=IN_MEMORY).initial(before.vector, before.carried)
    earlier = parse_digest(stated.continues.plans[-1])
    stem = state_stem(participant, earlier)
    took_part = [path for ending in _ENDINGS if (path := state_folder / f"{stem}{ending}").exists()]
    if not took_part:
        return False
    copy = earlier_copy(state_folder, participant, earlier, begun)
    if copy is None:
        raise StateError(
            f"{participant} took part in the earlier run ({', '.join(map(str, took_part))}), and "
            f"its own copy, {state_folder / stem}.run, cannot be read",
            "copy this site's state folder back from its newest backup; or, if you agree to continue from the "
            "state that the plan names, move these files away and name it in policy.initial_weights",
        )
    _, ended = copy
    if ended.stage is not FinalStage.FINISHED:
        raise StateError(
            f"{participant} left the earlier run after round {ended.rounds_done} of "
            f"{stated.continues.rounds}, so its own copy cannot tell in which state it ended",
            f"if you agree to continue from the state that the plan names, move {state_folder / stem}.run and its "
            "like away, and name it in policy.initial_weights",
        )
    own = state_digest(going_on(ended, keeps_tail=derived.returns_tail(plan)), stated.continues.plans)
    if own != stated.continues.state:
        raise ApprovalError(
            f"the plan continues from the state {stated.continues.state} after round {stated.continues.rounds}; "
            f"in {participant}'s own copy of that run the end is {own} after round {ended.rounds_done}",
            "do not approve it: the plan was made from another model than that run's; ask the lead and the others",
        )
    _check_remembered(state_folder, participant, plan, begun, before.layout.dimension)
    _check_lost_rounds(state_folder, participant, plan, begun)
    return True


def beginning_words(runs: Path, state_folder: Path, participant: ParticipantId, plan: Plan, before: Before) -> str:
    """Return in words what a site knows of the beginning of a plan's run; empty where the seed makes it.

    Args:
        runs: the folder of this site's own copies of runs.
        state_folder: of this site.
        participant: the site.
        plan: the plan.
        before: what the plan is bound to.

    Raises:
        FedfairError: as `begins_with_own_run`.
    """
    stated = plan.training.initial
    if stated is None:
        return ""
    if stated.continues is not None:
        if saw_the_end(state_folder, participant, plan, before):
            return (
                f"the state that the plan continues from is the one in which {participant} saw the earlier run end"
            )
        place = "plan.initial.state" if plan.file is None else state_file(plan.file).name
        return (
            f"{participant} has no copy of the earlier run of plan {stated.continues.plans[-1]}: what it approves "
            f"is the state in {place} itself; {TRAP_WEIGHTS}"
        )
    known = _own_model(runs, participant, plan, stated)
    if known is not None:
        return f"the initial weights are those of {participant}'s own copy of an earlier run, {known}"
    place = initial_model_file(plan.file).name if plan.file else "the file beside the plan"
    return (
        f"no model of {participant}'s own runs has the initial weights {stated.weights} with their scaling and "
        f"threshold: what it approves are the weights in {place}; {TRAP_WEIGHTS}"
    )


def model_begun_with(runs: Path, participant: ParticipantId, plan: Plan) -> Path | None:
    """Return the model of this site's own runs that a plan begins with; None where it begins with none of them.

    Args:
        runs: the folder of this site's own copies of runs.
        participant: the site.
        plan: the plan.

    Raises:
        ApprovalError: as of `begins_with_own_run`.
    """
    stated = plan.training.initial
    return None if stated is None or stated.continues is not None else _own_model(runs, participant, plan, stated)


def _own_model(runs: Path, participant: ParticipantId, plan: Plan, stated: InitialSection) -> Path | None:
    """Return the model of this site's own runs that a plan begins with; None where none is that model.

    Raises:
        ApprovalError: the plan says that its sites have evaluated this model, and this site knows better.
    """
    sites = sites_digest(plan.federation.collaborators)
    for path in sorted(runs.glob("*/save/*.safetensors"), key=lambda each: each.stat().st_mtime, reverse=True):
        try:
            found = read_saved(path)
        except DataError:
            # A model that cannot be read is no model with these weights.
            continue
        if not _is_begun_with(stated, found) or found.origin.fine_tuned_at:
            continue
        if stated.same_sites and found.origin.sites != sites:
            raise ApprovalError(
                f"the plan says that exactly its sites have evaluated its initial weights; by {participant}'s own "
                f"copy, {path}, other sites did, or an evaluation was without some of them",
                _SAYS_SAME_SITES,
            )
        return path
    if stated.same_sites:
        raise ApprovalError(
            f"the plan says that {participant} has evaluated its initial weights {stated.weights}, and no copy of "
            f"a run in {runs} has them",
            f"bring this site's own copies of runs back; otherwise: {_SAYS_SAME_SITES}",
        )
    return None


def _is_begun_with(stated: InitialSection, found: DescribedModel) -> bool:
    """Return whether a model is all that a plan begins with: weights, frozen ones too, scaling and threshold."""
    saved = found.saved
    frozen = format_digest(found.layout.frozen) if found.layout.frozen else None
    scaling = None if saved.scaling is None else format_digest(scaling_digest(saved.scaling))
    threshold = stated.threshold is None or stated.threshold == saved.model.threshold
    begun = (format_digest(vector_digest(saved.model.vector)), scaling, frozen)
    return begun == (stated.weights, stated.scaling, stated.frozen) and threshold


def earlier_copy(
    state_folder: Path, participant: ParticipantId, plan_digest: bytes, like: RunState
) -> tuple[str, RunState] | None:
    """Return this site's own copy of the run of another plan; None where nothing sound is kept.

    Args:
        state_folder: of this site.
        participant: the site.
        plan_digest: of that plan, 32 bytes.
        like: a state of a plan with the same model.

    Raises:
        StateError: this user may not read the file, or the disk cannot.
    """
    path = state_folder / f"{state_stem(participant, plan_digest)}.run"
    if not path.exists():
        return None
    return RunStore(path, lambda _: False).load(like)


def _check_remembered(
    state_folder: Path, participant: ParticipantId, plan: Plan, begun: RunState, dimension: int
) -> None:
    """Refuse to begin without what the state counts of this site."""
    counted = begun.terms.get("variates")
    if counted is None:
        return
    number = round_of(counted, plan.federation.collaborators, participant)
    length = None if derived.keeps_parameters(plan) else 0 if derived.keeps_site_thresholds(plan) else dimension
    if number != NEVER and earlier_variate(state_folder, participant, plan, length, begun, number) is None:
        raise StateError(
            f"{participant} has lost what it kept of round {number}, which the continued run counts",
            "copy this site's state folder back from its newest backup; without it, begin a new run by "
            "`fedfair plan freeze --from`",
        )


def _check_lost_rounds(state_folder: Path, participant: ParticipantId, plan: Plan, begun: RunState) -> None:
    """Refuse a plan that counts fewer attempts at rounds than this site has answered.

    The noise for whole collaborators is stated for all sums of all runs. How many were given up is the lead's
    figure, so each site compares it with its own record: no epsilon is then stated for fewer sums than this site
    has been in.
    """
    stated = plan.training.initial
    if (
        derived.privacy_level(plan) is not derived.PrivacyLevel.COLLABORATORS
        or stated is None
        or stated.continues is None
    ):
        return
    counted = 0
    for digest in stated.continues.plans:
        plan_digest = parse_digest(digest)
        copy = earlier_copy(state_folder, participant, plan_digest, begun)
        if copy is None:
            continue
        path = state_folder / f"{state_stem(participant, plan_digest)}{_ANSWERED}"
        if not path.exists():
            raise StateError(
                f"{path} is missing: {participant} cannot tell how often it answered in the earlier run, and "
                "noise counts every answer",
                "copy this site's state folder back from its newest backup",
            )
        with closing(TableFile(path, ANSWERED)) as table:
            run_id, state = copy
            rounds = range(1, state.rounds_done + 1)
            counted += sum(max(0, answers_in_round(table, run_id, number) - 1) for number in rounds)
    if counted > stated.continues.lost_rounds:
        raise ApprovalError(
            f"the plan says that {stated.continues.lost_rounds} attempts at rounds of the earlier run were given "
            f"up; {participant} has answered {counted} that were, and noise counts each of them",
            f"ask the lead to run `fedfair plan extend` again with --lost-rounds {counted}",
        )


def earlier_variate(
    state_folder: Path,
    participant: ParticipantId,
    plan: Plan,
    dimension: int | None,
    like: RunState,
    number: RoundNumber,
) -> KeptVariate | None:
    """Return what a site has kept for a round of the runs that its plan continues; None where nothing sound is.

    Args:
        state_folder: of this site.
        participant: the site.
        plan: the plan.
        dimension: of what is kept; None for any.
        like: the state before the first sum of the plan's run.
        number: of the round.

    Raises:
        StateError: this user may not read the file, or the disk cannot.
    """
    if number > derived.rounds_before(plan):
        return None
    for digest in reversed(derived.earlier_plans(plan)):
        plan_digest = parse_digest(digest)
        copy = earlier_copy(state_folder, participant, plan_digest, like)
        if copy is None:
            continue
        folder = state_folder / f"{state_stem(participant, plan_digest)}.variates"
        kept = VariateStore(folder, dimension, partial(str, copy[0])).found(number)
        if kept is not None:
            return kept
    return None
