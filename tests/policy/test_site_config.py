"""A site's own file and policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfair.errors import PlanError
from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.policy.disclosures import SUMS_ONLY
from fedfair.policy.plan_check import PolicyError, check_policy
from fedfair.policy.site_config import SitePolicy, load_site_config
from fedfair.policy.terms import AskedTerms, least_collaborators
from tests import plans

PLAN = plans.stated(
    federation={"min_collaborators": 2},
    task={"standardize": "secure"},
    training={"rounds": 300},
    secure_aggregation={"mode": "off"},
)

CODE = bytes(range(32))
CODE_TEXT = format_digest(CODE)


def plan(**sections: dict[str, object]) -> Plan:
    return Plan.model_validate(plans.over(PLAN, **sections))


def masked(**sections: dict[str, object]) -> Plan:
    """Return the same plan with masked sums, of which none leaves anybody out."""
    hidden: dict[str, dict[str, object]] = {"secure_aggregation": {"mode": "malicious"}}
    return plan(**{**hidden, "federation": {"min_collaborators": None}, **sections})


def test_a_site_that_says_only_its_name_has_careful_defaults(tmp_path: Path) -> None:
    (tmp_path / "collaborator.yaml").write_text("collaborator: clinic-a\n")
    site = load_site_config(tmp_path / "collaborator.yaml")
    assert site.collaborator == "clinic-a"
    assert not site.policy.allow_plain_sums
    assert not site.policy.allow_module_code
    assert site.policy.purposes == ("training", "evaluation", "standardisation")
    assert (site.device, site.threads, site.approval, site.data.train) == (None, None, None, None)
    assert site.cert_folder == str(tmp_path / "cert")


def test_paths_start_from_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sites").mkdir()
    path = tmp_path / "sites" / "collaborator.yaml"
    path.write_text(
        "collaborator: clinic-a\ndata: {train: data/train.csv, test: /srv/test.csv}\n"
        "cert_folder: ../cert\napproval: approvals/clinic-a.json\n"
    )
    monkeypatch.chdir(tmp_path)
    for spelling in (path, Path("sites/collaborator.yaml")):
        site = load_site_config(spelling)
        assert site.data.train == str(tmp_path / "sites/data/train.csv")
        assert site.data.test == "/srv/test.csv"
        assert site.data.root is None
        assert Path(site.cert_folder).resolve() == tmp_path / "cert"
        assert site.approval == str(tmp_path / "sites/approvals/clinic-a.json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "collaborator.yaml is empty"),
        ("device: cpu\n", "collaborator.yaml:1: collaborator: is missing -> name of this site in the plan"),
        ("collaborator: aggregator\n", "collaborator.yaml:1: collaborator: 'aggregator' is reserved"),
        ("collaborator: a\ndevise: cpu\n", "collaborator.yaml:2: devise: unknown key -> did you mean 'device'?"),
        ("collaborator: a\nthreads: 0\n", "collaborator.yaml:2: threads: must be >= 1, found 0"),
        ("collaborator: a\ndata: x.csv\n", "collaborator.yaml:2: data: must be a mapping, found 'x.csv'"),
        (
            "collaborator: a\npolicy: {allow_plain_sums: yes}\n",
            "allow_plain_sums: must be true or false, found 'yes'",
        ),
        ("collaborator: a\npolicy: {purposes: []}\n", "policy.purposes: must have at least 1 items"),
        ("collaborator: a\npolicy: {purposes: [training, training]}\n", "purposes[1]: 'training' is listed twice"),
        (
            "collaborator: a\npolicy: {purposes: [spying]}\n",
            "policy.purposes[0]: must be 'training', 'evaluation' or",
        ),
        (
            "collaborator: a\npolicy: {module_code: [sha256:12]}\n",
            "'sha256:12' is not a digest -> it is",
        ),
        ("collaborator: a\npolicy: {algorithms: [sgd]}\n", "policy.algorithms[0]: must be 'fedsrcvar', 'fedavg'"),
        (
            "collaborator: a\npolicy: {reveals: [secrets]}\n",
            "policy.reveals[0]: must be 'update-sums', ",
        ),
        ("collaborator: a\npolicy: {max_rounds: 1.5}\n", "policy.max_rounds: must be an integer, found 1.5"),
    ],
)
def test_a_mistake_in_a_sites_file_is_told_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "collaborator.yaml"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        load_site_config(path)
    assert expected in caught.value.message


def test_a_plan_within_the_policy_passes() -> None:
    policy = SitePolicy(allow_plain_sums=True, max_rounds=300, min_collaborators=2)
    check_policy(AskedTerms(plan(), CODE), policy, "clinic-a")
    check_policy(AskedTerms(masked(), CODE), SitePolicy(), "clinic-a")


@pytest.mark.parametrize(
    ("asked", "floors", "words"),
    [
        ({"mode": "semi-honest"}, {}, "mode: semi-honest; this site's policy wants malicious"),
        ({}, {"colluders": 1}, "colluders: 0; this site's policy wants 1"),
        ({"ring_bits": 16}, {"ring_bits": 24}, "ring_bits: 16; this site's policy wants 24"),
        (
            {"key_agreement": "x25519"},
            {"key_agreement": "x25519-mlkem768"},
            "key_agreement: x25519; this site's policy wants x25519-mlkem768",
        ),
        ({"clip": 5.0}, {"max_clip": 2.0}, "clip: 5; this site's policy allows 2"),
        ({"clip": "auto"}, {"max_clip": 2.0}, "max_clip: 1024; this site's policy allows 2"),
        ({}, {"max_attempts": 2}, "max_attempts: 3; this site's policy allows 2"),
    ],
)
def test_weaker_masks_than_the_site_wants_are_refused(
    asked: dict[str, object], floors: dict[str, object], words: str
) -> None:
    stated = masked(secure_aggregation={"mode": "malicious", **asked})
    with pytest.raises(PlanError, match=words):
        check_policy(AskedTerms(stated, CODE), SitePolicy.model_validate(floors), "clinic-a")


def test_a_site_that_demands_both_key_agreements_takes_a_plan_that_has_both() -> None:
    hybrid = "x25519-mlkem768"
    stated = masked(secure_aggregation={"mode": "malicious", "key_agreement": hybrid})
    check_policy(AskedTerms(stated, CODE), SitePolicy(key_agreement=hybrid), "clinic-a")
    check_policy(AskedTerms(stated, CODE), SitePolicy(), "clinic-a")


BROKEN = [
    (
        plan(),
        SitePolicy(),
        (
            "the plan asks for secure_aggregation.mode: off; this site's policy refuses plain sums "
            "-> set policy.allow_plain_sums: true in collaborator.yaml if you agree"
        ),
    ),
    (
        plan(task={"model": "model:build"}),
        SitePolicy(allow_plain_sums=True),
        (
            "the plan runs code of its own here (model:build); this site's policy refuses module code "
            "-> read that code, then set policy.module_code: ["
            f"{CODE_TEXT}] in collaborator.yaml if you agree"
        ),
    ),
    (
        plan(evaluation={"site_means": True}),
        SitePolicy(allow_plain_sums=True),
        (
            "the plan asks for evaluation.site_means: true; this site's policy keeps its own means to itself "
            "-> set policy.publish_site_means: true in collaborator.yaml if you agree"
        ),
    ),
    (
        plan(),
        SitePolicy(allow_plain_sums=True, max_rounds=299),
        (
            "the plan asks for training.rounds: 300; this site's policy allows 299 "
            "-> set policy.max_rounds: 300 or more in collaborator.yaml if you agree"
        ),
    ),
    (
        plan(),
        SitePolicy(allow_plain_sums=True, min_collaborators=3),
        (
            "the plan sums over as few as 2 collaborators; this site's policy wants 3 "
            "-> set policy.min_collaborators: 2 or less in collaborator.yaml if you agree"
        ),
    ),
    (
        plan(),
        SitePolicy(allow_plain_sums=True, purposes=("training", "standardisation")),
        (
            "the plan asks for evaluation sums; this site's policy allows training, standardisation "
            "-> add evaluation to policy.purposes in collaborator.yaml if you agree"
        ),
    ),
    (
        plan(),
        SitePolicy(allow_plain_sums=True, purposes=("training", "evaluation")),
        (
            "the plan asks for standardisation sums; this site's policy allows training, evaluation "
            "-> add standardisation to policy.purposes in collaborator.yaml if you agree"
        ),
    ),
]


@pytest.mark.parametrize(("asked", "policy", "expected"), BROKEN)
def test_a_broken_term_is_named_with_both_values(asked: Plan, policy: SitePolicy, expected: str) -> None:
    with pytest.raises(PlanError) as caught:
        check_policy(AskedTerms(asked, CODE), policy, "clinic-a")
    assert caught.value.message == f"the policy of clinic-a refuses this plan:\n  {expected}"


def test_a_site_that_only_evaluates_may_evaluate_a_saved_model_and_not_run_the_plan() -> None:
    policy = SitePolicy(allow_plain_sums=True, purposes=("evaluation",))
    check_policy(AskedTerms(plan(), evaluation_only=True), policy, "clinic-a")
    with pytest.raises(PlanError, match="the plan asks for training sums; this site's policy allows evaluation "):
        check_policy(AskedTerms(plan(), CODE), policy, "clinic-a")
    without = SitePolicy(allow_plain_sums=True, purposes=("training", "standardisation"))
    with pytest.raises(PlanError, match="the plan asks for evaluation sums"):
        check_policy(AskedTerms(plan(), evaluation_only=True), without, "clinic-a")


def test_all_broken_terms_are_named_together() -> None:
    policy = SitePolicy(max_rounds=1, min_collaborators=3, purposes=("evaluation",))
    with pytest.raises(PlanError) as caught:
        check_policy(AskedTerms(plan(task={"data": "data:load"}), CODE), policy, "clinic-a")
    assert caught.value.message.count(" in collaborator.yaml if you agree") == 6


def test_a_plan_that_can_leave_a_site_out_wants_the_consent_of_each_site_where_sums_are_masked() -> None:
    leaving = masked(federation={"min_collaborators": 2})
    with pytest.raises(PlanError, match="as few as 2 of 3 collaborators, and two neighbouring sums") as caught:
        check_policy(AskedTerms(leaving, CODE), SitePolicy(), "clinic-a")
    assert "set policy.min_collaborators: 2 or less in collaborator.yaml if you agree" in caught.value.message
    check_policy(AskedTerms(leaving, CODE), SitePolicy(min_collaborators=2), "clinic-a")
    assert least_collaborators(leaving, SitePolicy()) == 3
    assert least_collaborators(plan(), SitePolicy(allow_plain_sums=True)) == 1


def test_a_quorum_of_all_is_held_against_the_policy_as_all() -> None:
    check_policy(
        AskedTerms(plan(federation={"min_collaborators": None})),
        SitePolicy(allow_plain_sums=True, min_collaborators=3),
        "clinic-a",
    )


def test_code_runs_where_its_very_digest_is_named_and_nowhere_else() -> None:
    stated = AskedTerms(masked(task={"model": "model:build"}), CODE)
    other = format_digest(bytes(32))
    check_policy(stated, SitePolicy(module_code=(other, CODE_TEXT)), "clinic-a")
    with pytest.raises(PlanError, match=f"other code here .model:build, {CODE_TEXT}. than this site's"):
        check_policy(stated, SitePolicy(module_code=(other,)), "clinic-a")


def test_allowing_any_code_still_allows_any_code_unless_some_is_named() -> None:
    stated = AskedTerms(masked(task={"model": "model:build"}), CODE)
    check_policy(stated, SitePolicy(allow_module_code=True), "clinic-a")
    named = SitePolicy(allow_module_code=True, module_code=(format_digest(bytes(32)),))
    with pytest.raises(PolicyError) as caught:
        check_policy(stated, named, "clinic-a")
    (term,) = caught.value.broken
    assert (term.key, term.asked) == ("module_code", f"model:build: {CODE_TEXT}")


def test_algorithms_are_allowed_by_name() -> None:
    stated = AskedTerms(masked(training={"algorithm": "fedavg"}))
    check_policy(stated, SitePolicy(algorithms=("fedavg", "fedsrcvar")), "clinic-a")
    with pytest.raises(PlanError, match=r"algorithm: fedavg, .* allows fedsrcvar -> add fedavg to policy"):
        check_policy(stated, SitePolicy(algorithms=("fedsrcvar",)), "clinic-a")


@pytest.mark.parametrize(
    ("sections", "kind", "source"),
    [
        ({}, "update-sums", "training.algorithm: fedsrcvar"),
        ({}, "loss-sums", "evaluation"),
        ({}, "feature-sums", "task.standardize: secure"),
    ],
)
def test_what_a_deployment_reveals_today_is_allowed_unless_a_site_says_less(
    sections: dict[str, dict[str, object]], kind: str, source: str
) -> None:
    stated = AskedTerms(masked(**sections))
    check_policy(stated, SitePolicy(), "clinic-a")
    less = SitePolicy.model_validate({"reveals": [other for other in SUMS_ONLY if other != kind]})
    with pytest.raises(PlanError, match=f"{source} reveals {kind}; .* -> add {kind} to policy.reveals"):
        check_policy(stated, less, "clinic-a")


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("afl", "site-losses"), ("fedminmax", "group-losses"), ("fedmgda", "site-updates"), ("erm", "records")],
)
def test_an_algorithm_that_reveals_more_than_sums_is_refused_by_what_it_reveals(algorithm: str, kind: str) -> None:
    training = {"algorithm": algorithm, "server_optimizer": None}
    stated = AskedTerms(masked(training=training))
    with pytest.raises(PolicyError) as caught:
        check_policy(stated, SitePolicy(), "clinic-a")
    assert [(term.key, term.asked) for term in caught.value.broken] == [("reveals", kind)]
    check_policy(stated, SitePolicy.model_validate({"reveals": [*SUMS_ONLY, kind]}), "clinic-a")


@pytest.mark.parametrize("evaluation_only", [False, True])
def test_histograms_of_scores_are_refused_unless_a_site_names_them(evaluation_only: bool) -> None:
    asked = masked(evaluation={"scores": True})
    stated = AskedTerms(asked, evaluation_only=evaluation_only)
    words = "evaluation.scores: true reveals score-sums; this site's policy allows .* -> add score-sums to"
    with pytest.raises(PlanError, match=words):
        check_policy(stated, SitePolicy(), "clinic-a")
    check_policy(stated, SitePolicy(reveals=(*SitePolicy().reveals, "score-sums")), "clinic-a")


def test_a_site_that_evaluates_a_saved_model_is_not_asked_about_the_algorithm_that_made_it() -> None:
    stated = masked(training={"algorithm": "fedavg"})
    policy = SitePolicy(algorithms=("fedsrcvar",), reveals=("loss-sums",))
    check_policy(AskedTerms(stated, evaluation_only=True), policy, "clinic-a")
    with pytest.raises(PlanError):
        check_policy(AskedTerms(stated), policy, "clinic-a")
