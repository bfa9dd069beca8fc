"""Plans for tests: the smallest one that is valid, and what a test is about laid over it.

`stated` is a plan as its file states it, `parsed` is the same plan checked. A test names the keys that matter to
it; every other key is the smallest plan's, or the product's default. The smallest plan trains as the paper does,
whose steps have oracles; `untuned` leaves the steps to the product's defaults. Both measure the loss, without any
reference.
"""

from collections.abc import Mapping, Sequence

from fedfair.plan.schema import Plan

Section = Mapping[str, object]
Values = dict[str, dict[str, object]]

NAMES = ("clinic-a", "clinic-b", "clinic-c")


PAPER: Values = {
    "objective": {"smoothing": {"name": "softplus", "gamma": 0.05}},
    "training": {
        "schedule": "constant",
        "server_optimizer": {"name": "sgd"},
        "batch_size": 64,
        "learning_rate": 0.05,
        "output": "last",
    },
}
"""How the paper's algorithm steps."""

OWN_STEP = ("afl", "drfa", "fedminmax", "qffl", "deltafl", "fedmgda", "localbpf", "dro", "bpf")
"""Algorithms that take no server optimizer."""


def stated(names: Sequence[str] = NAMES, **sections: Section) -> Values:
    """Return the smallest valid plan of these collaborators, with the keys of these sections laid over it."""
    smallest: Values = {
        "federation": {"name": "heart", "collaborators": list(names)},
        "task": {"data": "breast-cancer", "model": {"name": "linear"}},
        "objective": {"measure": "loss"},
        "training": {"rounds": 1, "threshold_init": "bound"},
    }
    found = over(over(smallest, **PAPER), **sections)
    if found["training"].get("algorithm") in OWN_STEP:
        found["training"]["server_optimizer"] = None
    return found


def untuned(names: Sequence[str] = NAMES, **sections: Section) -> Values:
    """Return the same plan with the product's own defaults for how it is trained."""
    found = stated(names, **sections)
    for name, keys in PAPER.items():
        for key in keys:
            if key not in sections.get(name, {}):
                del found[name][key]
    return found


def over(values: Mapping[str, Section], **sections: Section) -> Values:
    """Return the values of a plan in which each key of these sections has replaced the one that was there."""
    held = {name: keys for name, keys in values.items() if keys is not None}  # a dumped plan of no statistics
    return {name: {**held.get(name, {}), **sections.get(name, {})} for name in {**held, **sections}}


def parsed(names: Sequence[str] = NAMES, **sections: Section) -> Plan:
    """Return what `stated` states, checked."""
    return Plan.model_validate(stated(names, **sections))


def small_plan(
    *,
    rounds: int = 5,
    federation: Section | None = None,
    protection: Section | None = None,
    names: tuple[str, ...] = NAMES,
    **training: object,
) -> dict[str, object]:
    """Return a plan that real processes finish in seconds; in the clear without `protection`."""
    fractions = {"fractions": [0.5, 0.3, 0.2]} if len(names) == 3 else {}
    return dict(
        stated(
            names,
            federation=federation or {},
            task={
                "partition": {"scheme": "random", **fractions},
                "standardize": "secure",
                "model": {"name": "linear", "init": "zeros"},
            },
            objective={"name": "rcvar", "worst_group_size": 0.3, "tradeoff": 0.1},
            training={
                "algorithm": "fedsrcvar",
                "rounds": rounds,
                "local_steps": 2,
                "batch_size": 16,
                "precision": "fp64",
                **training,
            },
            secure_aggregation={"mode": "off"} if protection is None else protection,
            evaluation={"every": 5, "bins": 64},
        )
    )
