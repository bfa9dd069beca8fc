"""The state from which a finished run continues with more rounds, and its check against the plan that names it.

A run ends with its output model, which may be an earlier one or a mean. It continues from the model of the last
round with everything that later rounds depend on: threshold, moments, control variates, weights of groups, clip,
scaling, and the evaluations so far. So the rounds that follow are those of a run that was planned that long from
the beginning, bit for bit where a round does not depend on how many there are: under a constant schedule.

The plan names the digest of this state under the earlier plan. Whoever took part computes the same digest from its
own copy of that run. No torch: the aggregator imports this module.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedfair.aggregation.round_subject import scaling_digest
from fedfair.aggregation.training_sum import IterateMean
from fedfair.errors import LocalProtocolError, PlanError
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.plan.initial import InitialSection
from fedfair.run.initial_model import vector_digest
from fedfair.run.packed_state import unpack_state
from fedfair.run.progress import FinalStage, is_at, purpose_at
from fedfair.run.state import RunState
from fedfair.run.state_slots import KEPT_AT_END
from fedfair.statistics.statistic import When

EXTEND_AGAIN = "ask the lead to run `fedfair plan extend` again, and to export the workspace again"


def going_on(state: RunState, *, keeps_tail: bool) -> RunState:
    """Return the state from which a finished run continues.

    Args:
        state: of the finished run; it stays as it is.
        keeps_tail: whether the output is a mean of the last rounds alone, which begins anew.

    Raises:
        PlanError: the run is not finished, or an earlier version of fedfair has finished it.
    """
    if state.stage is not FinalStage.FINISHED:
        raise PlanError(
            f"the run stands at {state.stage.value} after round {state.rounds_done}, and is not finished",
            "let it finish first; a run that was given up cannot be extended",
        )
    final = state.final
    replaced = state.mean is not None or (final is not None and final.round != state.rounds_done)
    if replaced and state.last is None:
        raise PlanError(
            "this run was finished by a version of fedfair that did not keep the model of the last round",
            "begin a new run with its output model: `fedfair plan freeze --from save/last.safetensors`",
        )
    model, mean, evaluated = state.last or state.model, state.mean, state.evaluated
    if mean is not None and keeps_tail:
        mean = IterateMean(np.zeros_like(mean.vector))
    if evaluated is not None and evaluated.vector_sha256 != model.vector_sha256:
        evaluated = None
    return replace(
        state,
        stage=purpose_at(When.ROUND),
        model=model,
        last=None,
        mean=mean,
        final=None,
        evaluated=evaluated,
        evaluated_earlier=None,
        query=None,
        query_fault="",
        slices=None,
        kept={word: kept for word, kept in state.kept.items() if word not in KEPT_AT_END},
    )


def state_digest(state: RunState, plans: tuple[str, ...]) -> str:
    """Return the digest of a state from which a run continues, as a plan names it.

    Args:
        state: of `going_on`.
        plans: digests of the plans whose run continues; the state is of the last one.
    """
    return format_digest(state.digest(parse_digest(plans[-1])))


def stated_state(raw: bytes, stated: InitialSection, fresh: RunState) -> RunState:
    """Return the state that a plan names, from the bytes beside the plan.

    Args:
        raw: of `pack_state`.
        stated: the plan's section, with `continues`.
        fresh: the state before the first sum of the same plan, for the form of a state.

    Raises:
        PlanError: the bytes cannot be read, or are another state than the plan names.
    """
    continues = stated.continues
    if continues is None:
        raise LocalProtocolError("a state beside a plan that continues from none")
    try:
        state = unpack_state(raw, fresh)
    except LocalProtocolError as fault:
        raise PlanError(
            f"the state that the run continues from does not fit the plan: {fault.message}",
            "change nothing of an extended plan that its state depends on; " + EXTEND_AGAIN,
        ) from fault
    found = state_digest(state, continues.plans)
    if found != continues.state:
        raise PlanError(
            f"plan.initial.state is the state {found}, the plan names {continues.state}; one of them was changed",
            f"bring the file back that belongs to the plan; or {EXTEND_AGAIN}",
        )
    weights = format_digest(vector_digest(state.model.vector))
    scaling = None if state.scaling is None else format_digest(scaling_digest(state.scaling))
    own = (int(state.rounds_done), weights, scaling)
    if own != (continues.rounds, stated.weights, stated.scaling) or not is_at(state.stage, When.ROUND):
        raise PlanError(
            f"plan.initial.state is after round {own[0]} with weights {own[1]} and scaling {own[2]}, the plan "
            f"names round {continues.rounds}, {stated.weights} and {stated.scaling}",
            EXTEND_AGAIN,
        )
    return state
