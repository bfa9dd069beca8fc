"""The decay of weights: against torch's AdamW, and what it leaves alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.ids import RoundNumber
from fedfair.plan.schema import Plan
from fedfair.terms.table import PlanTerms, terms_of
from fedfair.terms.term import Moved, OpenedRound, TermSetting
from tests.plans import parsed

RATE, SHARE = 0.5, 0.02
DOUBLE = np.dtype(np.float64)
LAYOUT = Layout(
    (
        LayoutEntry("bias", (2,)),
        LayoutEntry("frozen", (2, 1), trainable=False),
        LayoutEntry("mean", (1,), trainable=False),
        LayoutEntry("weight", (2, 2)),
    ),
    DOUBLE,
)
START = np.array([1.0, -2.0, 3.0, 4.0, 5.0, 1.0, -2.0, 3.0, -4.0])


def plan(optimizer: dict[str, object], schedule: str = "constant", decay: float | None = SHARE) -> Plan:
    training = {"rounds": 20, "learning_rate": RATE, "schedule": schedule, "warm_up": 0.0}
    return parsed(training={**training, "server_optimizer": optimizer, "weight_decay": decay})


def walk(stated: Plan, gradients: np.ndarray) -> np.ndarray:
    """Return the model after the rounds whose pseudo-gradients these are, array (rounds, 9)."""
    terms = PlanTerms(TermSetting(stated, LAYOUT, 2))
    states, model = terms.first, Moved(START, 1.0)
    for number, gradient in enumerate(gradients, start=1):
        opened = OpenedRound(RoundNumber(number), model, -RATE * 3.0 * gradient, {"threshold": 0.0}, 3.0)
        before = model.vector.copy()
        states, after = terms.after(states, opened)
        np.testing.assert_array_equal(model.vector, before)
        model = after
    return model.vector


@given(st.lists(st.lists(st.floats(-10.0, 10.0), min_size=9, max_size=9), min_size=1, max_size=15))
def test_with_adam_it_is_torchs_adamw(rows: list[list[float]]) -> None:
    gradients = np.array(rows)
    gradients[:, 2:5] = 0.0
    adam = {"name": "adam", "learning_rate": 0.1, "floor": 0.01}
    found = walk(plan(adam), gradients)
    bias, weight = (
        torch.tensor(START[place], dtype=torch.float64, requires_grad=True) for place in (slice(2), slice(5, 9))
    )
    groups = [{"params": [bias], "weight_decay": 0.0}, {"params": [weight], "weight_decay": SHARE / 0.1}]
    reference = torch.optim.AdamW(groups, lr=0.1, betas=(0.9, 0.95), eps=0.01)
    for row in gradients:
        bias.grad, weight.grad = torch.tensor(row[:2]), torch.tensor(row[5:])
        reference.step()
    # Fifteen steps of at most 0.1 * 10 and some forty roundings each.
    expected = np.concatenate([bias.detach().numpy(), START[2:5], weight.detach().numpy()])
    assert np.abs(found - expected).max() <= 15 * 40 * 2.0**-52 * 20


@pytest.mark.parametrize("optimizer", [{"name": "sgd"}, {"name": "yogi", "learning_rate": 0.1}])
def test_weights_alone_shrink_and_by_the_schedule(optimizer: dict[str, object]) -> None:
    still = np.zeros((2, 9))
    constant = walk(plan(optimizer), still)
    np.testing.assert_allclose(constant[5:], START[5:] * (1.0 - SHARE) ** 2, rtol=1e-15)
    np.testing.assert_array_equal(constant[:5], START[:5])
    # The second of twenty rounds has the factor 19 / 20.
    falling = walk(plan(optimizer, "linear"), still)
    np.testing.assert_allclose(falling[5:], START[5:] * (1.0 - SHARE) * (1.0 - SHARE * 19 / 20), rtol=1e-15)


def test_a_plan_without_decay_has_no_such_term() -> None:
    with_decay, without = (
        {term.name for term in terms_of(plan({"name": "sgd"}, decay=one))} for one in (SHARE, 0.0)
    )
    assert with_decay - without == {"weight_decay"}
