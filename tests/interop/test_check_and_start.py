"""`collaborator check` refuses whatever a start would refuse before it connects, in the same words."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
import yaml

from collaborator import commands
from collaborator.computing.computation import Computation
from collaborator.egress import EgressRecord
from collaborator.participation import worker_of
from collaborator.preflight import CheckedStep, check_site
from collaborator.preparation import PreparedSite, find_site, keep_policy, make_ready
from collaborator.records import SiteLogs
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import FedfairError, PlanError
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.proxy import choose_route
from fedfair.wire.calling import Address
from fedfair.workspace.create import TEMPLATES, plan_text
from tests.plans import small_plan
from tests.site_reading import read_site

NOBODY = Address("localhost", 1)
MASKED = {"mode": "malicious", "most_records": 512}


def site_of(workspace: Workspace) -> PreparedSite:
    return read_site("clinic-a", workspace.folder / "clinic-a.yaml", workspace.plan, None)


def start(site: PreparedSite) -> None:
    """Do what a start does before it connects."""
    ready = make_ready(site)
    answers = worker_of(ready, site.workspace / "logs")
    try:
        EgressRecord(site, ready.binding.digest).close()
    finally:
        answers.close()
        answers._worker.shutdown()


def checked(site: PreparedSite) -> dict[str, CheckedStep]:
    return {item.name: item for item in check_site(site, lambda: NOBODY, site.workspace / "logs")}


def state(workspace: Workspace, ending: str) -> Path:
    """Start once, so that there is a state, and return one of its files."""
    site = site_of(workspace)
    start(site)
    digest = checked(site)["plan digest"].detail.removeprefix("sha256:")
    return site.state / f"clinic-a-{digest[:16]}{ending}"


def damage(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b'{"this is": no JSON}\n')


def occupied(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


SPOILED: dict[str, tuple[Callable[[Workspace], object], str]] = {
    "no approval": (lambda work: (work.folder / "approvals" / "clinic-a.json").unlink(), "approval"),
    "another plan": (lambda work: damage(work.folder / "approvals" / "clinic-a.json"), "approval"),
    "no key": (lambda work: (work.folder / "cert" / "clinic-a" / "signing.key").unlink(), "certificate"),
    "answered": (lambda work: damage(state(work, ".answered")), "state"),
    "kept run": (lambda work: occupied(state(work, ".run")), "state"),
    "write-ahead log": (lambda work: occupied(state(work, ".secagg")), "state"),
    "egress record": (lambda work: damage(site_of(work).egress), "egress record"),
}


def test_more_records_than_the_plan_allows_are_found_by_the_check(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1, protection={"mode": "malicious", "most_records": 8}))
    site = site_of(workspace)
    with pytest.raises(FedfairError, match="the plan allows at most 8") as caught:
        make_ready(site)
    found = checked(site)["computation"]
    assert (found.passed, found.detail, found.remedy) == (False, caught.value.message, caught.value.remedy)
    assert checked(site)["data"].passed


@pytest.mark.parametrize("name", SPOILED)
def test_whatever_stops_a_start_before_it_connects_is_found_by_the_check_in_the_same_words(
    tmp_path: Path, name: str
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1, protection=MASKED))
    spoil, item = SPOILED[name]
    spoil(workspace)
    site = site_of(workspace)
    with pytest.raises(FedfairError) as caught:
        start(site)
    found = checked(site)[item]
    assert (found.passed, found.detail, found.remedy) == (False, caught.value.message, caught.value.remedy)


@pytest.mark.parametrize("protection", [None, MASKED])
def test_a_check_of_a_good_site_finds_nothing_and_leaves_its_state_free(
    tmp_path: Path, protection: dict[str, object] | None
) -> None:
    site = site_of(prepare(tmp_path, small_plan(rounds=1, protection=protection)))
    assert [item.name for item in checked(site).values() if not item.passed] == ["connection"]
    start(site)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_plan_sets_no_limit_on_records_that_nobody_chose(template: str) -> None:
    assert "\n  most_records" not in plan_text("heart", template)


def refused(workspace: Workspace, policy: str) -> PreparedSite:
    """Return a site whose policy refuses the plan."""
    file = workspace.folder / "clinic-a.yaml"
    site = yaml.safe_load(file.read_text(encoding="utf-8"))
    site["policy"][policy] = False
    file.write_text(yaml.safe_dump(site), encoding="utf-8")
    return find_site("clinic-a", file, workspace.plan, None)


def test_a_plan_that_the_policy_refuses_is_one_item_and_the_others_are_looked_at(tmp_path: Path) -> None:
    site = refused(prepare(tmp_path, small_plan(rounds=1)), "allow_plain_sums")
    with pytest.raises(PolicyError) as caught:
        keep_policy(site)
    found = checked(site)
    assert (found["policy"].passed, found["policy"].detail) == (False, caught.value.message)
    assert [name for name, item in found.items() if not item.passed] == ["policy", "connection"]
    assert "aggregator" not in found


def test_no_code_runs_that_the_policy_does_not_allow(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit('this code must not run')\n")
    workspace = prepare(tmp_path, small_plan(rounds=1))
    text = yaml.safe_load(workspace.plan.read_text(encoding="utf-8"))
    text["task"] = {
        "data": "own:load",
        "input_shape": [2],
        "classes": 2,
        "model": {"name": "linear", "init": "zeros"},
    }
    workspace.plan.write_text(yaml.safe_dump(text), encoding="utf-8")
    found = checked(find_site("clinic-a", tmp_path / "clinic-a.yaml", workspace.plan, None))
    assert not found["policy"].passed
    assert "the plan runs code of its own here (own:load)" in found["policy"].detail
    assert not {"data", "plan digest", "computation", "aggregator"} & set(found)
    assert found["certificate"].passed


def test_a_proxy_that_is_none_is_one_item_and_the_others_are_looked_at(tmp_path: Path) -> None:
    site = site_of(prepare(tmp_path, small_plan(rounds=1)))

    def no_proxy() -> Address:
        return Address(
            "clinic.test", 1, choose_route("clinic.test", 1, "environment", {"https_proxy": "socks5://p"})
        )

    with pytest.raises(PlanError) as caught:
        no_proxy()
    found = {item.name: item for item in check_site(site, no_proxy, tmp_path / "logs")}
    address = found["address"]
    assert (address.passed, address.detail, address.remedy) == (False, caught.value.message, caught.value.remedy)
    assert [name for name, item in found.items() if not item.passed] == ["address"]
    assert found["state"].passed


def test_a_folder_of_logs_that_cannot_be_written_is_found_by_the_check(tmp_path: Path) -> None:
    site = site_of(prepare(tmp_path, small_plan(rounds=1)))
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(FileExistsError):
        SiteLogs(tmp_path / "logs", site.participant)
    logs = checked(site)["logs"]
    assert (logs.passed, logs.detail) == (False, f"File exists ({tmp_path / 'logs'})")


CONNECTED = {"driver_of", "_until_stopped", "withdraw"}
"""Where a start connects; what these call comes later, or instead."""

ONLY_AT_A_START = {
    "other_process": "of _warn_of_another",
    "_warn_of_another": "says at once that a second process of the site waits, where a check does not wait",
    "_take_part": "its parts are looked at one by one",
    "taken_passphrase": "is given by the service that has started the process; no service starts a check",
    "TakingPart": "holds options of a start",
    "asked_processes": "reads what torchrun says, by which no check is started",
    "compute_along": "the other processes of a site, which need what the first one needs",
    "follow": "of compute_along",
    "_end_processes": "the end of a run",
    "participate": "its parts before the connection are looked at one by one",
    "make_ready": "its parts are looked at one by one",
    "owner_column": "whether a start makes the key of withdrawals, without which a check reads as well",
    "set_threads": "says in how many threads torch computes, and refuses none",
    "keep_freed_memory": "a wish to the C library, which never stops a start",
    "open_account": "forecast_of looks at the ledger without writing to it",
    "PrivacyBudget": "of open_account",
    "ParticipationTerms": "holds values, refuses none",
    "_say": "prints",
    "text_lines": "prints",
    "in_turn": "prints",
    "json_lines": "how it is told",
    "StatusKeeper": "shows the status, and stops nothing",
    "PrivacyForecast": "is said",
    "RecordsChanged": "is said",
    "RecordsWithheld": "is said",
    "_look_at_records": "never stops a start",
    "Site.secret_warnings": "warns",
    "SummaryUnwritten": "is said",
    "keep_summary": "never stops a start",
    "summary_path": "names a file",
    "write_whole": "of keep_summary",
    "Finished": "the end of a run",
    "exit_status": "of a fault in a run",
    "StoppedError": "raised by a signal",
    "AbortedError": "raised by a run",
    "as_service": "ends a command by its signal",
    "PrivacyError": "is caught, so that the aggregator is told",
    "is_masked": "warns of sums in the clear",
    "Site.code_warnings": "warns",
    "JsonLog": "how it is told",
    "LogChoice": "how it is told",
    "LogFormat": "how it is told",
    "LogLevel": "how it is told",
    "LoggedEvent": "how it is told",
    "_say_fault": "how it is told",
    "_shown": "how it is told",
    "_warn": "how it is told",
    "json_log": "how it is told",
    "StatusPlace": "asked for on the command line, and refused before anything else",
    "asked_place": "asked for on the command line, and refused before anything else",
    "track_targets": "asked for on the command line, and refused before anything else",
    "RunStatus": "shows the status, and stops nothing",
    "SiteStatusServed": "shows the status, and stops nothing",
    "_watched_part": "shows the status, and stops nothing",
    "initial_status": "shows the status, and stops nothing",
    "utc_now": "shows the status, and stops nothing",
    "watched": "shows the status, and stops nothing",
    "SiteTracking": "writes a copy of what is told, and stops nothing",
    "TrackedRun": "writes a copy of what is told, and stops nothing",
    "_tracked": "writes a copy of what is told, and stops nothing",
    "tracked_facts": "writes a copy of what is told, and stops nothing",
}
"""What a start alone calls before it connects, and why no check of it is lost."""


def parts(root: FunctionType, stop: set[str]) -> set[str]:
    """Return the names of our functions and classes that a function needs, through functions of the site."""
    found: set[str] = set()
    todo = [root]
    while todo:
        function = todo.pop()
        for name, part in needed(function):
            if name in found or name in stop:
                continue
            found.add(name)
            if isinstance(part, FunctionType) and part.__module__.startswith("collaborator."):
                todo.append(part)
            elif isinstance(part, type) and Computation in part.__bases__:
                todo += [member for member in vars(part).values() if isinstance(member, FunctionType)]
    return found


def needed(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield every function or class of ours that a function's source names, and every member of `PreparedSite`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    known: dict[str, object] = dict(vars(inspect.getmodule(function) or ModuleType("none")))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module = importlib.import_module(node.module)
            known |= {alias.asname or alias.name: getattr(module, alias.name) for alias in node.names}
    for node in ast.walk(tree):
        whole = node.value if isinstance(node, ast.Attribute) else node
        module = known.get(whole.id) if isinstance(whole, ast.Name) else None
        if isinstance(node, ast.Name) or isinstance(module, ModuleType):
            part = module if isinstance(node, ast.Name) else getattr(module, node.attr, None)
            ours = getattr(part, "__module__", "").startswith(("collaborator", "fedfair"))
            if ours and isinstance(part, FunctionType | type):
                yield part.__name__, part
        elif isinstance(node, ast.Attribute) and node.attr in vars(PreparedSite):
            member = vars(PreparedSite)[node.attr]
            if isinstance(member, FunctionType | property):
                yield f"Site.{node.attr}", member


def test_a_check_looks_at_everything_that_a_start_needs_before_it_connects() -> None:
    start_parts = parts(commands.start, CONNECTED)
    assert {"find_site", "choose_route", "keep_policy", "read_records", "assemble", "_check_weight"} <= start_parts
    assert {"worker_of", "WriteAheadLog", "SiteLogs", "EgressRecord", "Site.identity"} <= start_parts
    unchecked = start_parts - parts(commands.check, CONNECTED)
    assert unchecked - set(ONLY_AT_A_START) == set()


def test_a_part_that_only_a_start_needs_is_found() -> None:
    seen = parts(commands.start, CONNECTED)
    assert "EgressRecord" in seen - parts(commands.check, {*CONNECTED, "EgressRecord"})
    assert set(ONLY_AT_A_START) <= seen
