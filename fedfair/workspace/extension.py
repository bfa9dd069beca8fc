"""Makes a plan with more rounds out of one whose run is finished: the same plan, and the state it continues from.

Decides what changes in the workspace: the number of rounds in `plan.yaml`, and beside it `plan.initial.yaml` with
the digests, the weights, and the state itself. Everything else that people wrote stays unchanged.
The files change all at once, or none does (`update.py`).
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from fedfair.aggregation.round_subject import scaling_digest
from fedfair.errors import PlanError
from fedfair.plan.deployment import check_trains
from fedfair.plan.derived import earlier_plans, returns_tail
from fedfair.plan.digest import format_digest
from fedfair.plan.initial import ContinuedSection, InitialSection
from fedfair.plan.loading import initial_path, load_plan, plan_document, roster_path
from fedfair.plan.schema import Plan
from fedfair.run.continuing import going_on, state_digest
from fedfair.run.initial_model import (
    InitialModel,
    initial_model_file,
    state_file,
    vector_digest,
    write_initial_model,
)
from fedfair.run.initial_section import check_not_by_hand, write_initial_section
from fedfair.run.packed_state import pack_state
from fedfair.run.state import RunState
from fedfair.workspace.update import PlanUpdate

MAX_ROUNDS = 10**9


@dataclass(frozen=True, slots=True)
class Extension:
    """A plan with more rounds.

    Attributes:
        plan: the plan.
        done: rounds that are done.
        update: the files that change.
    """

    plan: Plan
    done: int
    update: PlanUpdate


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A finished run.

    Attributes:
        state: its last one.
        lost_rounds: attempts at rounds that were given up, of earlier runs too.
    """

    state: RunState
    lost_rounds: int

    def counting(self, lost_rounds: int) -> FinishedRun:
        """Return the same run with more attempts that were given up, as a site has counted them.

        Raises:
            PlanError: they are fewer than are known already, or too many.
        """
        if not self.lost_rounds <= lost_rounds <= MAX_ROUNDS:
            raise PlanError(
                f"--lost-rounds {lost_rounds}: the journal has {self.lost_rounds} attempts that were given up",
                f"state a number from {self.lost_rounds} to {MAX_ROUNDS}, or leave the option out",
            )
        return replace(self, lost_rounds=lost_rounds)


def extension(plan_file: Path, before: InitialModel, run: FinishedRun, rounds: int) -> Extension:
    """Return the plan by which a finished run continues; nothing is written.

    Args:
        plan_file: the plan of that run, in a workspace.
        before: what that plan is bound to.
        run: the run.
        rounds: how many rounds are added.

    Raises:
        PlanError: the run is not finished, or the plan cannot be changed by a command.
    """
    plan = check_trains(load_plan(plan_file))
    check_not_by_hand(plan_file)
    if not 1 <= rounds <= MAX_ROUNDS - plan.training.rounds:
        raise PlanError(
            f"--rounds {rounds}: a run continues for at least one round more", "state how many rounds to add"
        )
    state = going_on(run.state, keeps_tail=returns_tail(plan))
    plans = (*earlier_plans(plan), format_digest(before.plan_digest))
    scaling = state.scaling
    begun = plan.training.initial
    section = InitialSection(
        weights=format_digest(vector_digest(state.model.vector)),
        frozen=None if begun is None else begun.frozen,
        scaling=None if scaling is None else format_digest(scaling_digest(scaling)),
        continues=ContinuedSection(
            plans=plans,
            rounds=int(state.rounds_done),
            state=state_digest(state, plans),
            lost_rounds=run.lost_rounds,
        ),
    )
    text = with_rounds(plan_file, plan.training.rounds, plan.training.rounds + rounds)
    with tempfile.TemporaryDirectory(prefix="fedfair-extension-") as folder:
        beside = Path(folder) / plan_file.name
        beside.write_text(text, encoding="utf-8")
        if roster_path(plan_file).exists():
            roster_path(beside).write_bytes(roster_path(plan_file).read_bytes())
        written = write_initial_section(beside, section)
        longer = load_plan(beside)
        _check_only_rounds(plan, longer)
        place = initial_model_file(beside)
        write_initial_model(
            plan_file, longer, before.layout, state.model.vector, before.schema, scaling, place=place
        )
        replaced = {
            plan_file: text.encode("utf-8"),
            initial_path(plan_file): written.read_bytes(),
            initial_model_file(plan_file): place.read_bytes(),
            state_file(plan_file): b"".join(pack_state(state)),
        }
    folder_name = plan_file.resolve().parent.name
    names = {f"{folder_name}/{path.name}": content for path, content in replaced.items()}
    return Extension(longer, int(state.rounds_done), PlanUpdate(names, ()))


def with_rounds(plan_file: Path, before: int, after: int) -> str:
    """Return the text of a plan with another number of rounds, and nothing else changed.

    Raises:
        PlanError: the rounds are not written as one number on a line.
    """
    document = plan_document(plan_file)
    line = document.spot(("training", "rounds")).line
    lines = plan_file.read_text(encoding="utf-8").splitlines(keepends=True)
    pattern = rf"(\brounds\s*:\s*)\+?{before}\b"
    if not 1 <= line <= len(lines) or len(re.findall(pattern, lines[line - 1])) != 1:
        raise PlanError(
            f"{document.spot(('training', 'rounds'))}: training.rounds is not written as one number on this line",
            f"write `rounds: {before}` on a line of its own under training, then run the same command again",
        )
    lines[line - 1] = re.sub(pattern, rf"\g<1>{after}", lines[line - 1])
    return "".join(lines)


def _check_only_rounds(before: Plan, after: Plan) -> None:
    def without(plan: Plan) -> Plan:
        training = plan.training.model_copy(update={"rounds": 1, "initial": None})
        return plan.model_copy(update={"training": training})

    if without(before) != without(after):
        raise PlanError(
            "training.rounds cannot be changed without changing something else of the plan",
            "write `rounds` as one number on a line of its own under training",
        )
