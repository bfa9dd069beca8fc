"""Whether a plan keeps to a site's policy.

The policy is the site's own file, read at its own start; the aggregator never sees it and cannot override it. A
refusal names every term that the plan breaks, with the plan's value, the site's value and what to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fedfair.errors import PlanError
from fedfair.plan.schema import Plan
from fedfair.plan.site import SitePolicy

_FILE = "collaborator.yaml"


def check_policy(plan: Plan, policy: SitePolicy, name: str, *, evaluation_only: bool = False) -> None:
    """Refuse a plan that asks for more than the site allows.

    Args:
        plan: what is asked.
        policy: what the site allows.
        name: the site, for the message.
        evaluation_only: whether a saved model of the plan is evaluated, for which nothing but evaluation sums are
            needed, and not the whole plan run.

    Raises:
        PlanError: at least one term is broken; the message names all of them.
    """
    purposes = ("evaluation",) if evaluation_only else tuple(_purposes(plan))
    broken = [*_broken_terms(plan, policy), *_missing_purposes(purposes, policy)]
    if broken:
        raise PlanError("\n  ".join([f"the policy of {name} refuses this plan:", *broken]))


def _broken_terms(plan: Plan, policy: SitePolicy) -> Iterator[str]:
    mode = plan.secure_aggregation.mode
    if mode == "off" and not policy.allow_plain_sums:
        yield _term(
            "the plan asks for secure_aggregation.mode: off; this site's policy refuses plain sums",
            "set policy.allow_plain_sums: true",
        )
    yield from _broken_masking(plan, policy)
    if plan.task.references and not policy.allow_module_code:
        named = ", ".join(plan.task.references)
        yield _term(
            f"the plan runs code of its own here ({named}); this site's policy refuses module code",
            "read that code, then set policy.allow_module_code: true",
        )
    if plan.evaluation.site_means and not policy.publish_site_means:
        yield _term(
            "the plan asks for evaluation.site_means: true; this site's policy keeps its own means to itself",
            "set policy.publish_site_means: true",
        )
    rounds = plan.training.rounds
    if policy.max_rounds is not None and rounds > policy.max_rounds:
        yield _term(
            f"the plan asks for training.rounds: {rounds}; this site's policy allows {policy.max_rounds}",
            f"set policy.max_rounds: {rounds} or more",
        )
    quorum = plan.federation.min_collaborators or len(plan.federation.collaborators)
    if policy.min_collaborators is not None and quorum < policy.min_collaborators:
        yield _term(
            f"the plan sums over as few as {quorum} collaborators; "
            f"this site's policy wants {policy.min_collaborators}",
            f"set policy.min_collaborators: {quorum} or less",
        )


def _missing_purposes(purposes: Iterable[str], policy: SitePolicy) -> Iterator[str]:
    for purpose in purposes:
        if purpose not in policy.purposes:
            yield _term(
                f"the plan asks for {purpose} sums; this site's policy allows {', '.join(policy.purposes)}",
                f"add {purpose} to policy.purposes",
            )


def _broken_masking(plan: Plan, policy: SitePolicy) -> Iterator[str]:
    stated, attempts = plan.secure_aggregation, plan.federation.max_attempts
    if stated.mode == "off":
        return
    demands: tuple[tuple[str, bool, object, object], ...] = (
        ("mode", stated.mode == "malicious" or policy.mode == "semi-honest", stated.mode, policy.mode),
        ("colluders", stated.colluders >= policy.colluders, stated.colluders, policy.colluders),
        (
            "key_agreement",
            policy.key_agreement in {"x25519", stated.key_agreement},
            stated.key_agreement,
            policy.key_agreement,
        ),
        ("ring_bits", stated.ring_bits >= policy.ring_bits, stated.ring_bits, policy.ring_bits),
    )
    for key, met, asked, wanted in demands:
        if not met:
            yield _term(
                f"the plan asks for secure_aggregation.{key}: {asked}; this site's policy wants {wanted}",
                f"set policy.{key}: {asked}",
            )
    key, clip = ("max_clip", stated.max_clip) if isinstance(stated.clip, str) else ("clip", stated.clip)
    if clip > policy.max_clip:
        yield _term(
            f"the plan asks for secure_aggregation.{key}: {clip:g}; this site's policy allows {policy.max_clip:g}",
            f"set policy.max_clip: {clip:g} or more",
        )
    if attempts > policy.max_attempts:
        yield _term(
            f"the plan asks for federation.max_attempts: {attempts}; "
            f"this site's policy allows {policy.max_attempts}",
            f"set policy.max_attempts: {attempts} or more",
        )


def _term(fault: str, change: str) -> str:
    return f"{fault} -> {change} in {_FILE} if you agree"


def _purposes(plan: Plan) -> Iterator[str]:
    yield "training"
    yield "evaluation"
    if plan.task.standardize == "secure":
        yield "standardisation"
