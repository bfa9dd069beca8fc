"""Checks that a plan keeps to a site's policy.

The policy is the site's own file, read at its own start; the aggregator never sees it and cannot override it. A
refusal names every term that the plan breaks, with the plan's value, the site's value and what to change.
"""

from __future__ import annotations

from fedfair.errors import PlanError
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms, Term, terms

_FILE = "collaborator.yaml"


DEPRECATED_CODE = (
    "policy.allow_module_code: true runs whatever code an approved plan names; name the code that you have read "
    "instead, in policy.module_code (`fedfair plan check` prints its digest)"
)


class PolicyError(PlanError):
    """A site's own policy refuses what is asked.

    Args:
        name: the site.
        broken: the terms that are broken, at least one.
    """

    def __init__(self, name: str, broken: tuple[Term, ...]) -> None:
        told = (f"{term.fault} -> {term.change} in {_FILE} if you agree" for term in broken)
        super().__init__("\n  ".join([f"the policy of {name} refuses this plan:", *told]))
        self.broken = broken


def check_policy(asked: AskedTerms, policy: SitePolicy, name: str) -> None:
    """Refuse what asks for more than the site allows.

    Args:
        asked: what is asked.
        policy: what the site allows.
        name: the site, for the message.

    Raises:
        PolicyError: at least one term is broken; the message names all of them.
    """
    broken = tuple(term for term in terms(asked, policy) if not term.kept)
    if broken:
        raise PolicyError(name, broken)
