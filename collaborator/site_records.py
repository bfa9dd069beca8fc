"""One site's own records for computations that stay here: no aggregator and no private key is needed.

Decides who the site is, that its policy lets the plan's own code run, and that it has approved this very plan, or
the evaluation of this very model, before any of that code runs. Everything else of a policy is about what leaves
the site, and nothing does. The approval is checked with the key that the plan pins for the site.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from collaborator.known_models import ModelPlaces, is_approved
from collaborator.plan_code import plan_code
from collaborator.preparation import PreparedSite, find_site, read_approval, read_records
from fedfair.errors import ApprovalError
from fedfair.identity.roster import parse_roster
from fedfair.ids import ParticipantId
from fedfair.plan.digest import format_digest
from fedfair.plan.fields import is_reference
from fedfair.plan.public_keys import UNPINNED_REMEDY
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.terms import AskedTerms, code_fault
from fedfair.results.outcome import RunSubject
from fedfair.run.model_description import schema_of
from fedfair.run.model_provenance import digest_with
from fedfair.run.saved_model import DescribedModel, read_saved
from fedfair.tables.dataset import Splits
from fedfair.tables.site_form import SiteTable, site_table
from fedfair.training.binding import plan_binding


@dataclass(frozen=True, slots=True)
class OwnRecords:
    """The records of one site.

    Attributes:
        plan: the plan that the site has approved.
        participant: the site's name in the plan.
        splits: its records, as a run of the plan reads them.
        code: the folder in which the plan's own code is found.
        table: how its table is written; None where its records are no table.
    """

    plan: Plan
    participant: ParticipantId
    splits: Splits
    code: Path
    table: SiteTable | None = None


def site_records(
    config_file: Path,
    plan_file: Path,
    model_file: Path,
    approval: Path | None = None,
    *,
    evaluates: bool = False,
    keep: Collection[str] = (),
) -> OwnRecords:
    """Return a site's own records, for a model of a plan that the site has approved.

    Args:
        config_file: its `collaborator.yaml`.
        plan_file: its copy of the plan.
        model_file: the saved model.
        approval: the approval, if it is not at the path in the site's file.
        evaluates: whether the model is evaluated and nothing else, for which an approval of this model is enough.
        keep: columns that are kept raw beside those that the plan keeps.

    Raises:
        FedfairError: a file cannot be read or is wrong, the site is not in the plan, its policy does not let
            the plan's own code run, or it has approved neither this plan nor, where that is enough, this model.
    """
    site = find_site(None, config_file, plan_file, approval)
    # A copy, so that the code that is compared is the code that runs.
    site = replace(site, code=plan_code(site.plan.task.references, site.workspace, frozen=True))
    broken = code_fault(AskedTerms(site.plan, site.code.digest), site.config.policy)
    if broken is not None:
        raise PolicyError(site.participant, (broken,))
    _check_approved(site, read_saved(model_file), model_file, evaluates=evaluates)
    splits, data = read_records(site, fewest=0, keep=keep).splits, site.plan.task.data
    table = site_table(data.csv, site.config.data.format, keep) if isinstance(data, CsvSource) else None
    return OwnRecords(site.plan, site.participant, splits, site.code.folder, table)


def _check_approved(site: PreparedSite, described: DescribedModel, model_file: Path, *, evaluates: bool) -> None:
    """Refuse a plan that this site has not approved; no code of the plan has run before."""
    digest = _plan_digest(site, described, model_file)
    try:
        read_approval(site, _pinned_key(site), digest)
    except ApprovalError:
        if not (evaluates and _is_approved_model(site, described, digest)):
            raise


def _pinned_key(site: PreparedSite) -> Ed25519PublicKey:
    key = parse_roster(site.plan.federation.roster).get(site.participant)
    if key is None:
        raise ApprovalError(
            f"the plan pins no key of {site.participant}, so {site.participant} cannot have approved it",
            UNPINNED_REMEDY,
        )
    return key


def _plan_digest(site: PreparedSite, described: DescribedModel, model_file: Path) -> bytes:
    """Return the digest of this site's copy of plan and code, for which none of that code has run."""
    model = site.plan.task.model
    if not (isinstance(model, str) and is_reference(model)):
        return plan_binding(site.plan, site.code.folder).digest
    found = digest_with(described, site.plan, site.code.folder)
    if found is not None:
        return found
    if not site.config.policy.module_code:
        code = "none" if site.code.digest is None else format_digest(site.code.digest)
        raise ApprovalError(
            f"{model_file} does not state its initial weights, so the approval cannot be compared before the "
            "plan's code runs",
            f"read that code, then name {code} in policy.module_code",
        )
    # The site itself has named this very code.
    return plan_binding(site.plan, site.code.folder).digest


def _is_approved_model(site: PreparedSite, described: DescribedModel, digest: bytes) -> bool:
    schema = schema_of(described.origin.description)
    subject = RunSubject(site.plan, format_digest(digest), described.layout, schema)
    places = ModelPlaces(site.participant, site.approval_file.parent, site.runs, subject)
    return is_approved(places, described)
