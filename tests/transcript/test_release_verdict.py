"""A site's word on the release follows from its own audit and its own policy; what a lead makes of it."""

import itertools
from collections.abc import Mapping

import pytest

from fedfair.aggregation.audit_findings import AuditedGroup, AuditFindings
from fedfair.policy.site_config import ReleaseSection, SitePolicy
from fedfair.policy.terms import AskedTerms, terms
from fedfair.privacy.membership import FoundShare
from fedfair.results.release import ReleaseFigures, audit_sentences, with_words, withheld_sentence
from fedfair.transcript.release_verdict import release_verdict
from fedfair.transcript.statement import NOT_ASKED, Release, ReleaseReason, ReleaseVerdict
from tests import plans

PLAN = plans.parsed()
AUDITED = plans.parsed(task={"test_fraction": 0.2}, evaluation={"release_audit": {}})
AGREED = ReleaseVerdict(Release.AGREED)


def findings(
    at_01: tuple[float, float], at_001: tuple[float, float] = (0.0, 0.0), epsilon: float | None = 0.0
) -> AuditFindings:
    """Return an audit of everybody and of a class, whose figures are these: estimates and lower ends."""
    nothing, shares = FoundShare(0.0, 0.0, 1.0), tuple(FoundShare(*each, 1.0) for each in (at_01, at_001))
    everybody = AuditedGroup("loss", None, (), 100, 50, 0.5, (nothing, nothing))
    return AuditFindings((everybody, AuditedGroup("loss", 1, (), 60, 30, 0.7, shares)), 0, epsilon, ("a",))


@pytest.mark.parametrize(
    ("found", "policy", "reasons"),
    [
        (findings((0.9, 0.05)), {}, ()),
        (findings((0.9, 0.0501)), {}, (ReleaseReason.MEMBERSHIP_TPR_AT_01,)),
        (findings((0.0501, 0.0)), {"judged_by": "estimate"}, (ReleaseReason.MEMBERSHIP_TPR_AT_01,)),
        (findings((0.05, 0.0)), {"judged_by": "estimate"}, ()),
        (findings((0.0, 0.0), (0.2, 0.011)), {}, (ReleaseReason.MEMBERSHIP_TPR_AT_001,)),
        (findings((0.9, 0.9), (0.9, 0.9)), {"membership_tpr_at_01": None, "membership_tpr_at_001": None}, ()),
        (findings((0.0, 0.0), epsilon=2.1), {"epsilon_lower_bound": 2.0}, (ReleaseReason.EPSILON_LOWER_BOUND,)),
        (findings((0.0, 0.0), epsilon=2.0), {"epsilon_lower_bound": 2.0}, ()),
        (findings((0.0, 0.0), epsilon=None), {"epsilon_lower_bound": 0.0}, ()),
        (findings((0.9, 0.9), (0.9, 0.9), 9.0), {"epsilon_lower_bound": 2.0}, tuple(ReleaseReason)[:3]),
        (None, {}, (ReleaseReason.NO_AUDIT,)),
    ],
)
def test_what_a_site_withholds_at(
    found: AuditFindings | None, policy: Mapping[str, object], reasons: tuple[ReleaseReason, ...]
) -> None:
    said = release_verdict(AUDITED, ReleaseSection.model_validate(policy), found)
    assert said == (ReleaseVerdict(Release.WITHHELD, reasons) if reasons else AGREED)


def test_nobody_is_asked_without_an_audit_and_a_site_that_wants_one_takes_no_part() -> None:
    assert release_verdict(PLAN, ReleaseSection(), None) == NOT_ASKED
    strict = SitePolicy(
        release=ReleaseSection(require_audit=True), reveals=("update-sums", "audit-sums", "loss-sums")
    )
    assert release_verdict(PLAN, strict.release, None).reasons == (ReleaseReason.NO_AUDIT,)
    for plan, policy in itertools.product((PLAN, AUDITED), (SitePolicy(), strict)):
        (term,) = (one for one in terms(AskedTerms(plan), policy) if one.key == "release")
        assert term.kept == (plan is AUDITED or policy is not strict)
    assert not [one for one in terms(AskedTerms(PLAN, evaluation_only=True), strict) if one.key == "release"]


def test_a_model_is_released_where_every_site_has_agreed() -> None:
    sites = ("a", "b", "c")
    figures = with_words(ReleaseFigures(), sites, dict.fromkeys(sites, AGREED))
    assert figures is not None
    assert (figures.state, [*withheld_sentence(figures)]) == ("released", [])
    assert "Every site has agreed" in next(iter(audit_sentences(figures)))
    withheld = ReleaseVerdict(Release.WITHHELD, (ReleaseReason.NO_AUDIT,))
    figures = with_words(ReleaseFigures(), sites, {"a": AGREED, "b": withheld})
    assert figures is not None
    assert figures.state == "not released"
    (said,) = withheld_sentence(figures)
    assert "b (no-audit), c (no statement)" in said
    assert "a (" not in said


def test_a_run_without_an_audit_tells_of_no_release_unless_a_site_has_a_word() -> None:
    assert with_words(None, ("a",), {"a": NOT_ASKED}) is None
    assert with_words(None, ("a",), {}) is None
    figures = with_words(None, ("a",), {"a": ReleaseVerdict(Release.WITHHELD, (ReleaseReason.NO_AUDIT,))})
    assert figures is not None
    assert figures.state == "not released"
