"""A site's own file and policy."""

import re
import traceback
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import AfterValidator

from fedfair.errors import PlanError
from fedfair.plan.digest import format_digest
from fedfair.plan.fields import Digest, Reference, Section
from fedfair.plan.schema import Plan
from fedfair.plan.sources import _check_name
from fedfair.policy.disclosures import MEANING, SUMS_ONLY
from fedfair.policy.plan_check import PolicyError, check_policy
from fedfair.policy.site_config import SiteConfig, SitePolicy, load_site_config
from fedfair.policy.site_sql import holds_password, url_fault, with_absolute_file
from fedfair.policy.terms import AskedTerms, least_collaborators
from tests import plans
from tests.conftest import REPOSITORY

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
        assert (site.data.train, site.data.test) == (str(tmp_path / "sites/data/train.csv"), "/srv/test.csv")
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
        ("collaborator: a\npolicy: {module_code: [sha256:12]}\n", "'sha256:12' is not a digest -> it is"),
        ("collaborator: a\npolicy: {algorithms: [sgd]}\n", "policy.algorithms[0]: must be 'fedsrcvar', 'fedavg'"),
        ("collaborator: a\npolicy: {reveals: [secrets]}\n", "policy.reveals[0]: must be 'update-sums', "),
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
def test_weaker_masks_than_wanted_are_refused(
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


PLAIN = SitePolicy(allow_plain_sums=True)
BROKEN = [
    (plan(), {"allow_plain_sums": False}, "mode: off", "policy.allow_plain_sums: true"),
    (plan(task={"model": "model:build"}), {}, r"\(model:build\)", rf"policy.module_code: \[{CODE_TEXT}\]"),
    (plan(evaluation={"site_means": True}), {}, "site_means: true", "policy.publish_site_means: true"),
    (plan(), {"max_rounds": 299}, "rounds: 300; .* 299", "policy.max_rounds: 300 or more"),
    (plan(), {"min_collaborators": 3}, "as few as 2 .* wants 3", "policy.min_collaborators: 2 or less"),
    (
        plan(),
        {"purposes": ("training", "standardisation")},
        "evaluation sums",
        "add evaluation to policy.purposes",
    ),
    (
        plan(),
        {"purposes": ("training", "evaluation")},
        "standardisation sums",
        "add standardisation to policy.purposes",
    ),
]


@pytest.mark.parametrize(("asked", "terms", "values", "remedy"), BROKEN)
def test_a_broken_term_is_named_with_values(
    asked: Plan, terms: dict[str, object], values: str, remedy: str
) -> None:
    with pytest.raises(PlanError) as caught:
        check_policy(AskedTerms(asked, CODE), PLAIN.model_copy(update=terms), "clinic-a")
    told = caught.value.message
    assert re.search(rf"{values}.* -> .*{remedy} in collaborator.yaml if you agree$", told), told
    assert told.startswith("the policy of clinic-a refuses this plan:\n")
    assert told.count("\n") == 1


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
    stated = AskedTerms(masked(training={"algorithm": algorithm, "server_optimizer": None}))
    with pytest.raises(PolicyError) as caught:
        check_policy(stated, SitePolicy(), "clinic-a")
    assert [(term.key, term.asked) for term in caught.value.broken] == [("reveals", kind)]
    check_policy(stated, SitePolicy.model_validate({"reveals": [*SUMS_ONLY, kind]}), "clinic-a")


@pytest.mark.parametrize("evaluation_only", [False, True])
def test_histograms_of_scores_are_refused_unless_a_site_names_them(evaluation_only: bool) -> None:
    stated = AskedTerms(masked(evaluation={"scores": True}), evaluation_only=evaluation_only)
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


# ---- the database in a site's own file: what may stand there, and that no password is repeated by anything

SECRET = "hunter2-zebra"  # noqa: S105 - of nobody
URL = "postgresql://reader@db.example.org:5432/omop"


def loaded(folder: Path, **sql: object) -> SiteConfig:
    file = folder / "collaborator.yaml"
    file.write_text(yaml.safe_dump({"collaborator": "clinic-a", "data": {"sql": sql}}), encoding="utf-8")
    return load_site_config(file)


def test_relative_paths_start_from_the_folder_of_the_file(tmp_path: Path) -> None:
    sql = loaded(tmp_path, url="duckdb:///own/records.duckdb", query_file="cohort.sql").data.sql
    assert (sql.url, sql.query_file) == (f"duckdb:///{tmp_path}/own/records.duckdb", str(tmp_path / "cohort.sql"))
    files = {"url_file": "secret/url", "password_file": "/run/pw"}
    sql = loaded(tmp_path, query="SELECT 1", **files).data.sql
    assert (sql.url_file, sql.password_file) == (str(tmp_path / "secret/url"), "/run/pw")


@pytest.mark.parametrize(
    ("url", "placed"),
    [
        ("sqlite:///a.db", "sqlite:////srv/a.db"),
        ("sqlite:////a.db", "sqlite:////a.db"),
        ("duckdb:///a.duckdb?x=1", "duckdb:////srv/a.duckdb?x=1"),
        ("duckdb:///:memory:", "duckdb:///:memory:"),
        (URL, URL),
    ],
)
def test_only_the_file_of_a_database_is_a_path(url: str, placed: str) -> None:
    assert with_absolute_file(url, lambda path: str(Path("/srv") / path)) == placed


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://reader:{SECRET}@db.example.org/omop",
        f"postgresql://:{SECRET}@db.example.org/omop",
        f"postgresql://reader:{SECRET}@more@db.example.org/omop",
        f"postgresql://reader:a/{SECRET}@db.example.org/omop",
        f"postgresql://reader:a?{SECRET}@db.example.org/omop",
        f"postgresql://reader@db.example.org/omop?password={SECRET}",
        f"postgresql://reader@db.example.org/omop?sslpassword={SECRET}",
        f"mssql+pyodbc:///?odbc_connect=PWD%3D{SECRET}",
        f"duckdb:///md:omop?motherduck_token={SECRET}",
    ],
)
def test_a_password_in_the_url_is_refused_by_a_message_that_does_not_repeat_it(tmp_path: Path, url: str) -> None:
    assert holds_password(url)
    with pytest.raises(PlanError) as refused:
        loaded(tmp_path, url=url, query="SELECT 1")
    said = refused.value.diagnostics()
    assert "data.sql.url: holds a password, and this file is no place for one -> write it into a file" in said
    assert SECRET not in said
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    "url",
    [
        URL, "postgresql://reader:@db/omop", f"{URL}?passfile=/x&sslmode=require", "sqlite:////a:b@c.db",
        "postgresql:///x",
    ],
)  # fmt: skip
def test_a_url_without_a_password_is_taken(tmp_path: Path, url: str) -> None:
    assert not holds_password(url)
    assert url_fault(url) is None
    assert loaded(tmp_path, url=url, query="SELECT 1").data.sql is not None


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ({"url": URL}, "data.sql.query: is missing -> state query or query_file"),
        ({"query": "SELECT 1"}, "data.sql.url: is missing -> state url, url_file or url_env"),
        ({"url": URL, "url_env": "X", "query": "SELECT 1"}, "data.sql.url_env: is stated beside url"),
        ({"url": URL, "query": "SELECT 1", "query_file": "x.sql"}, "data.sql.query_file: is stated beside query"),
        ({"url": "db.example.org", "query": "SELECT 1"}, "data.sql.url: is not the URL of a database"),
        ({"url": "postgresql://u@h:x/d", "query": "SELECT 1"}, "data.sql.url: has a port that is no number"),
        ({"url": "postgresql://u@h:99999/d", "query": "SELECT 1"}, "data.sql.url: has a port that is no number"),
        ({"url": "postgresql://u:${PW}@h/d", "query": "SELECT 1"}, "holds a placeholder"),
        ({"url": "x" * 3000, "query": "SELECT 1"}, "has 3000 characters, at most 2000"),
        ({"url": URL, "query": "SELECT 1", "password": SECRET}, "data.sql.password: unknown key"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(tmp_path: Path, sql: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError) as refused:
        loaded(tmp_path, **sql)
    assert said in refused.value.diagnostics()
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_files_beside_a_database_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "collaborator.yaml"
    file.write_text(f"collaborator: a\ndata: {{train: a.csv, sql: {{url: '{URL}', query: SELECT 1}}}}\n")
    with pytest.raises(PlanError, match=r"data\.train: is stated beside sql -> keep the file or the database"):
        load_site_config(file)


def test_neither_url_nor_query_is_in_the_text_of_a_configuration(tmp_path: Path) -> None:
    assert "db.example.org" not in repr(loaded(tmp_path, url=URL, query="SELECT private"))
    assert "private" not in repr(loaded(tmp_path, url=URL, query="SELECT private"))


# ---- what a person cannot read in a plan has a term in a site's policy, and the term's default refuses
# A digest, a reference to code, a file: whoever approves a plan sees a text that says nothing of what it stands
# for. The fields are found in the schema itself, so that a new one fails here until it has a term. A text that
# says what it means is on the other list, with what it is.

SHA = "sha256:" + "7" * 64
BEGUN = {"weights": SHA, "scaling": SHA, "frozen": SHA}
GOING_ON = {**BEGUN, "continues": {"plans": [SHA], "rounds": 1, "state": SHA}}

UNREADABLE: dict[str, tuple[str, dict[str, dict[str, object]]]] = {
    "task.data": ("allow_module_code", {"task": {"data": "own:load"}}),
    "task.model": ("allow_module_code", {"task": {"model": "own:model"}}),
    "task.loss.name": ("allow_module_code", {"task": {"loss": "own:loss"}, "evaluation": {"loss_range": 4.0}}),
    "training.initial.weights": ("initial_weights", {"training": {"initial": BEGUN}}),
    "training.initial.scaling": ("initial_weights", {"training": {"initial": BEGUN}}),
    "training.initial.frozen": ("initial_weights", {"training": {"initial": BEGUN}}),
    "training.initial.continues.plans": ("initial_weights", {"training": {"rounds": 2, "initial": GOING_ON}}),
    "training.initial.continues.state": ("initial_weights", {"training": {"rounds": 2, "initial": GOING_ON}}),
    "objective.reference.run": (
        "initial_weights",
        {"objective": {"measure": "excess", "reference": {"run": "sha256:" + "5" * 64}}},
    ),
}
"""Every field that stands for something else than it says, with its term and a plan that uses it."""

_CSV = (
    "categorical", "collaborator", "columns", "comment", "dates", "event", "keep", "label", "label_values",
    "labels", "missing_of", "missing_values", "missing_values_of", "numeric", "ranges", "rows", "target", "time",
    "train_of",
)  # fmt: skip
READABLE = {
    # Names, of which each is somebody or something that the approving person knows.
    "federation.name", "federation.aggregator.host", "federation.collaborators", "evaluation.site_weights",
    # Keys that people have compared by phone, and of which each site finds its own.
    "federation.roster",
    # Columns, categories and spellings, as they stand in the site's own file.
    *(f"task.data.csv.{name}" for name in _CSV), "training.options.group_column", "task.partition.column",
    "evaluation.slices.columns", "statistics.columns", "statistics.by",
    "task.data.images.label", "task.data.images.keep", "task.data.eicu.keep", "task.data.acs_employment.keep",
    "task.data.images.collaborator", "task.data.eicu.collaborator", "task.data.acs_employment.collaborator",
    # Parameters of a model, by their names in it.
    "training.parameters.train", "training.parameters.keep", "training.parameters.lora.layers",
    # Paths for a simulation: a site names its own files.
    "task.data.csv.train", "task.data.csv.test", "task.data.mnist.folder", "task.data.eicu.folder",
    "task.data.images.folder", "task.data.images.attributes",
    "task.data.acs_employment.train", "task.data.acs_employment.test",
}  # fmt: skip
"""Every other text of a plan: it says what it means."""


def texts(
    annotation: object, place: str, checks: tuple[object, ...] = ()
) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the place of every text in a type, with its checks; refuse what is no value that a person can read."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        more = tuple(each.func for each in inner[1:] if isinstance(each, AfterValidator))
        yield from texts(inner[0], place, checks + more)
    elif origin in {typing.Union, types.UnionType, tuple, dict, list}:
        for each in inner:
            yield from texts(each, place, checks)
    elif isinstance(annotation, type) and issubclass(annotation, Section):
        for name, field in annotation.model_fields.items():
            found = tuple(each.func for each in field.metadata if isinstance(each, AfterValidator))
            yield from texts(field.annotation, f"{place}.{name}".lstrip("."), found)
    elif annotation is str:
        yield place, checks
    else:
        # A number, a choice of words, true or false: anything else is no value that a person can read.
        plain = annotation in {int, float, bool, type(None), Ellipsis} or origin is typing.Literal
        assert plain, f"{place}: {annotation} is neither readable nor known here"


def opaque_checks() -> set[object]:
    """Return the checks of the types that stand for something else than they say."""
    named = {
        each.func
        for one in (Digest, Reference)
        for each in typing.get_args(one)[1:]
        if isinstance(each, AfterValidator)
    }
    # The name of a data set, or a reference to code that reads one.
    return named | {_check_name}


def found() -> tuple[set[str], set[str]]:
    """Return the unreadable fields of a plan, and its other texts."""
    opaque, unreadable, others = opaque_checks(), set(), set()
    for place, checks in texts(Plan, ""):
        (unreadable if opaque & set(checks) else others).add(place)
    return unreadable, others


def test_every_field_that_a_person_cannot_read_has_a_term() -> None:
    assert found()[0] == set(UNREADABLE)


def test_every_other_text_of_a_plan_is_known_to_say_what_it_means() -> None:
    assert found()[1] == READABLE


@pytest.mark.parametrize("place", UNREADABLE)
def test_the_default_of_each_term_refuses_and_a_list_of_digests_allows(place: str) -> None:
    key, sections = UNREADABLE[place]
    plan = plans.parsed(**{"secure_aggregation": {"mode": "malicious"}, **sections})
    with pytest.raises(PolicyError) as refused:
        check_policy(AskedTerms(plan, bytes(32)), SitePolicy(), "clinic-a")
    assert [term.key for term in refused.value.broken] == [key]
    # The remedy names a digest, and with it in the list the plan passes.
    (digest,) = re.findall("sha256:[0-9a-f]{64}", refused.value.broken[0].change)
    listed = {"initial_weights": ["seed", digest]} if key == "initial_weights" else {"module_code": [digest]}
    check_policy(AskedTerms(plan, bytes(32)), SitePolicy.model_validate(listed), "clinic-a")


# ---- docs/reference/site-policy.md against the schema of a policy, and its example against a plan

PAGE = (REPOSITORY / "docs" / "reference" / "site-policy.md").read_text()


def test_every_term_has_a_row_and_every_row_is_a_term() -> None:
    terms = PAGE.partition("## The terms")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", terms, re.MULTILINE)) == sorted(SitePolicy.model_fields)


def test_every_kind_of_revelation_is_explained_as_in_the_code() -> None:
    assert [
        f"| `{kind}` | {words} |" for kind, words in MEANING.items() if f"| `{kind}` | {words} |" not in PAGE
    ] == []


def test_the_cautious_hospital_takes_part_in_a_careful_plan_and_in_no_other(tmp_path: Path) -> None:
    file = tmp_path / "collaborator.yaml"
    file.write_text(PAGE.partition("## A cautious hospital")[2].partition("```yaml\n")[2].partition("```")[0])
    policy = load_site_config(file).policy
    careful = plans.stated(
        [f"clinic-{letter}" for letter in "abcde"],
        task={"standardize": "secure"},
        training={"rounds": 200},
        secure_aggregation={"colluders": 1, "key_agreement": "x25519-mlkem768", "max_clip": 8.0},
    )
    check_policy(AskedTerms(Plan.model_validate(careful)), policy, "clinic-a")
    for section, change in (
        ("training", {"rounds": 201}),
        ("training", {"rounds": 200, "algorithm": "fedavg"}),
        ("evaluation", {"method": "exact"}),
        ("evaluation", {"site_means": True}),
        ("secure_aggregation", {"mode": "off"}),
    ):
        with pytest.raises(PlanError, match="the policy of clinic-a refuses this plan"):
            check_policy(AskedTerms(Plan.model_validate({**careful, section: change})), policy, "clinic-a")
