"""What the structure promises, held against the code itself; the import contracts are checked by lint-imports."""

import ast
import functools
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedfair
from fedfair.cli.commands import Commands
from tests.conftest import REPOSITORY
from tests.imports import is_quick
from tests.patience import PATIENCE
from tests.trees import PRODUCT, called, nodes, trees


@functools.cache
def _trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(REPOSITORY)): tree for each in PRODUCT for path, tree in trees(each).items()}


NOT_FILES = {
    "os.open", "arrived.open",
    "self.key.open", "self._folder.open", "folder.open", "Image.open", "Journal.open",
    "archive.open", "read_text",
}  # fmt: skip
"""What is called `open` and opens no text file, or is a function of ours that knows the encoding."""


@functools.cache
def _imported() -> list[tuple[str, str]]:
    found = [(place, alias.name) for place, node in nodes(ast.Import) for alias in node.names]
    return found + [(place, node.module) for place, node in nodes(ast.ImportFrom) if node.module]


Steps = list[tuple[str, str]]


def _loaded(steps: Steps, *branches: Steps) -> list[str]:
    """Return for each step which of its libraries are loaded after it and all steps before it.

    Args:
        steps: code, and the libraries that it must not load.
        branches: further steps; each branch is played in a fork of the process that has made `steps`.
    """

    def lines(made: Steps) -> list[str]:
        names = "print(*(name for name in {} if name in sys.modules), file=sys.stderr)"
        return [f"{code}; {names.format(never.split())}" for code, never in made]

    code = ["import os, sys", *lines(steps)]
    for branch in branches:
        code += ["if not os.fork():", *(f"    {line}" for line in lines(branch)), "    os._exit(0)", "os.wait()"]
    command = [sys.executable, "-c", "\n".join(code)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY, timeout=PATIENCE)
    return ran.stderr.splitlines()


TRAINING: dict[str, dict[str, object]] = {
    "plain": {},
    "control variates": {"training": {"local_steps": 3, "control_variates": True}},
    "bf16": {"training": {"precision": "bf16"}},
    "noise": {
        "privacy": {"sample_level": {"noise_multiplier": 1.0, "clip": 1.0, "delta": 1e-5}},
        "task": {"standardize": "none"},
    },
}


def test_what_a_process_and_a_public_name_load_at_their_start_and_while_it_trains() -> None:
    # One process, so that what they share is loaded once.
    commands = ", ".join(sorted({entry.module for entry in Commands.table.values()}))
    public: Steps = [
        ("import fedfair; fedfair.load_plan", "torch pandas sklearn typer numpy"),
        ("fedfair.worst_group_risk; fedfair.verify_certificate", "torch pandas sklearn typer"),
    ]
    aggregator: Steps = [
        (
            "import aggregator.commands, aggregator.server, aggregator.preparation",
            "torch pandas opacus dp_accounting",
        ),
        (f"import {commands}", "torch"),
    ]
    # What only some runs need is loaded by those runs: each takes as long as the rest of a start.
    site: Steps = [
        ("fedfair.RCVaRLoss", "pandas sklearn typer"),
        ("import collaborator.participation", "pandas sklearn scipy.stats opacus dp_accounting"),
        ("import fedfair.plan.schema as schema; from tests.plans import over, small_plan", ""),
    ]
    for changes in TRAINING.values():
        # The import of sympy takes seconds on a busy machine, in a round that every site waits for.
        plan = f"schema.Plan.model_validate(over(small_plan(rounds=1), **{changes}))"
        site.append((f"fedfair.simulate({plan}, engine='loop')", "sympy"))
    branches = [("fedfair.FairClassifier", "torch typer")], aggregator, site
    assert _loaded(public, *branches) == [""] * (len(public) + sum(map(len, branches)))


HEAVY = "torch pandas scipy numpy grpc matplotlib sklearn opacus dp_accounting ray PIL jinja2 safetensors asyncio"


def test_help_loads_nothing_that_only_the_work_needs() -> None:
    more = "pydantic cryptography yaml aggregator collaborator fedfair.plan fedfair.aggregation"
    asked = "from fedfair.cli.commands import app; app({}, standalone_mode=False)"
    steps = [
        (asked.format(["--version"]), f"{HEAVY} {more}"),
        (asked.format(["--help"]), f"{HEAVY} {more}"),
        (asked.format(["plan", "--help"]), f"{HEAVY} aggregator collaborator fedfair.aggregation"),
    ]
    assert _loaded(steps) == ["", "", ""]


def test_every_private_function_is_used_in_its_module() -> None:
    unused = []
    used: dict[str, set[str]] = {}
    for place, name in nodes(ast.Name):
        used.setdefault(place, set()).add(name.id)
    for place, attribute in nodes(ast.Attribute):
        used.setdefault(place, set()).add(attribute.attr)
    for place, tree in _trees().items():
        defined = (node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
        # Python itself calls the functions of a module whose names it knows, such as __getattr__.
        unused += [
            f"{place}: {name}"
            for name in defined
            if name.startswith("_") and not name.endswith("__") and name not in used[place]
        ]
    assert unused == []


def test_access_is_never_guarded_by_an_assert() -> None:
    # `python -O` removes asserts.
    assert nodes(ast.Assert) == []


def test_gradients_are_asked_for_in_ways_that_import_nothing_in_the_middle_of_a_round() -> None:
    # With weights of its own, torch's first call imports sympy, which takes seconds.
    named = [(place, name, len(node.args), node.keywords) for place, name, node in called()]
    assert [place for place, name, *_ in named if name == "torch.autograd.backward"] == []
    assert [
        place
        for place, name, given, keywords in named
        if (name == "torch.autograd.grad" and (given > 2 or any(one.arg == "grad_outputs" for one in keywords)))
        or (name.endswith(".backward") and given)
    ] == []


def test_a_collaborator_speaks_to_the_network_in_one_module_which_records_what_it_says() -> None:
    own = {(place, name.split(".")[0]) for place, name in _imported() if place.startswith("collaborator")}
    assert {place for place, name in own if name == "grpc"} == {"collaborator/link.py"}
    # The only other sockets of the product: a look at the aggregator's certificate, on which nothing is sent but
    # the question for a tunnel, and the aggregator's look at its own port, or at a free one for demonstrations.
    speaking = {"socket", "ssl", "http", "urllib", "requests", "ftplib", "smtplib", "socketserver", "xmlrpc"}
    assert {place for place, name in _imported() if name.split(".")[0] in speaking} == {
        "aggregator/address.py",
        "collaborator/computing/__main__.py",  # a site's own computing process, and never an aggregator
        "collaborator/computing/carrier.py",
        "collaborator/computing/launching.py",
        "fedfair/tables/sql_connection.py",  # knows how a URL spells a password
        "fedfair/cli/status.py",  # reads a status that is served
        "collaborator/consent_page/app.py",  # takes a form apart
        "fedfair/identity/preflight.py",
        "fedfair/identity/ssh_agent.py",  # asks an agent on this machine for a signature
        "fedfair/policy/proxy.py",  # takes a URL apart
        "fedfair/tracking/targets.py",  # takes a URL apart
        "fedfair/simulation/ray_cluster.py",  # asks whether a cluster answers, and says nothing
        "fedfair/watching/http_server.py",  # serves a status, where the operator asks for it
        "fedfair/watching/place.py",
    }
    calls = {name.split(".")[-1] for _, name, _ in called()}
    assert calls.isdisjoint({"open_connection", "open_unix_connection", "create_datagram_endpoint"})
    written = [
        name
        for place, name, _ in called()
        if place == "collaborator/link.py"
        and name.endswith((".write", "unary_unary", "stream_stream", ".sending"))
    ]
    assert sorted(written) == [
        "channel.stream_stream",
        "channel.unary_unary",
        "egress.sending",
        "self._call.write",
        "self._egress.sending",
    ]


@pytest.mark.parametrize("module", ["pickle", "dill", "random", "marshal", "shelve"])
def test_a_dangerous_module_is_imported_nowhere(module: str) -> None:
    assert [place for place, name in _imported() if name.split(".")[0] == module] == []


def test_nothing_draws_from_numpys_or_torchs_global_generator() -> None:
    drawn = {"manual_seed", "rand", "randn", "randint", "randperm", "seed", "default_rng", "normal", "shuffle"}
    # Inside fork_rng() the global generator is a private one: it is restored afterwards.
    forked = {
        inner
        for _, function in nodes(ast.FunctionDef)
        if any(isinstance(inner, ast.Attribute) and inner.attr == "fork_rng" for inner in ast.walk(function))
        for inner in ast.walk(function)
    }
    found = []
    for place, name, node in called():
        owner, _, last = name.rpartition(".")
        if node not in forked and last in drawn:
            seeded = any(keyword.arg == "generator" for keyword in node.keywords)
            if owner in {"np.random", "numpy.random"} or (owner == "torch" and not seeded):
                found.append(f"{place}:{node.lineno}")
    assert found == []


def test_no_exception_is_swallowed() -> None:
    # `except Exception: pass` and bare excepts hide wrong sums; a narrow, commented suppress is another matter.
    found = [
        f"{place}:{node.lineno}"
        for place, node in nodes(ast.ExceptHandler)
        if (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]
    assert found == []


def test_every_text_file_is_utf_8_whatever_the_locale_says() -> None:
    found = []
    for place, written, node in called():
        name, keywords = written.split(".")[-1], {keyword.arg: keyword.value for keyword in node.keywords}
        named = name in {"read_text", "write_text", "open", "fdopen"} and written not in NOT_FILES
        if not named and not {"text", "universal_newlines"} & keywords.keys():
            continue
        mode = " ".join(ast.unparse(value) for value in (*node.args, *keywords.values()))
        text = named and (name.endswith("text") or not re.search(r"'[rwax+]*b[rwax+]*'", mode))
        child = "text" in keywords or "universal_newlines" in keywords
        if (text or child) and not ("encoding" in keywords or "'utf-8'" in mode):
            found.append(f"{place}:{node.lineno}: {written}")
    assert found == []


_DERIVED = "fedfair/plan/derived.py"
_CONSISTENCY = {"fedfair/plan/schema.py", "fedfair/plan/sections.py", "fedfair/plan/task.py"} | {
    "fedfair/plan/privacy.py",
    "fedfair/plan/collaborator_privacy.py",
    "fedfair/plan/survey_terms.py",
    "fedfair/plan/excess_terms.py",
    "fedfair/plan/slice_terms.py",
    "fedfair/plan/audit_terms.py",
    "fedfair/plan/statistics_section.py",
}
"""The schema's own rules: they run before there is a plan that anything could be derived from."""

COMPARED = {
    "mode": {"off", "malicious", "semi-honest"},
    "standardize": {"secure", "ranges", "none"},
    "method": {"exact", "histogram"},
    "output": {"last", "best", "average", "tail"},
    "sample_level": {None},
    "collaborator_level": {None},
}
"""Keys of a plan, and the values that decide something when a key is compared with them."""


def _constants(node: ast.expr) -> set[object]:
    return {inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)}


def _derives(node: ast.AST) -> str:
    """Return which fact of a plan an expression derives; empty where it derives none."""
    match node:
        # A site's policy has keys of the same names, and results have a method.
        case ast.Attribute(attr="min_collaborators", value=owner) if not ast.unparse(owner).endswith("policy"):
            return "quorum"
        case ast.Attribute(attr="every", value=owner) if ast.unparse(owner).endswith("evaluation"):
            return "schedule"
        case ast.Compare(left=ast.Attribute(attr=key, value=owner), comparators=[value]) if key in COMPARED:
            if ast.unparse(owner).endswith(("policy", "document", "certificate")):
                return ""
            return key if COMPARED[key] & _constants(value) else ""
        case ast.Compare(comparators=[ast.Call(func=ast.Name(id="PrivacySection"))]):
            return "privacy level"
    return ""


def test_a_fact_of_a_plan_is_derived_in_one_place() -> None:
    deriving = itertools.chain(nodes(ast.Attribute), nodes(ast.Compare))
    found = {(place, fact) for place, node in deriving if (fact := _derives(node))}
    allowed = {_DERIVED, *_CONSISTENCY}
    assert {(place, fact) for place, fact in found if place not in allowed} == {
        ("fedfair/plan/schedule.py", "schedule")
    }


@pytest.mark.parametrize(
    ("expression", "fact"),
    [
        ("plan.federation.min_collaborators or len(names)", "quorum"),
        ("plan.secure_aggregation.mode != 'off'", "mode"),
        ("task.standardize == 'secure'", "standardize"),
        ("plan.evaluation.method == 'exact'", "method"),
        ("self._training.output in {'average', 'tail'}", "output"),
        ("plan.privacy.sample_level is not None", "sample_level"),
        ("plan.privacy != PrivacySection()", "privacy level"),
        ("done % plan.evaluation.every == 0", "schedule"),
        ("policy.min_collaborators or 0", ""),
        ("terms.mode is Mode.MALICIOUS", ""),
    ],
)
def test_a_fact_that_is_derived_elsewhere_is_found(expression: str, fact: str) -> None:
    found = {_derives(node) for node in ast.walk(ast.parse(expression))} - {""}
    assert found == ({fact} if fact else set())


def test_every_module_says_what_it_decides() -> None:
    assert [place for place, tree in _trees().items() if not ast.get_docstring(tree)] == []


_OF_CLASSES_ALONE = {
    "fedfair/plan/losses.py",  # the unit itself
    "fedfair/report/figures.py",  # a default, which every chart of a result replaces
    "fedfair/report/sentences.py",  # said of cross-entropy alone
    "fedfair/report/advice_page.py",  # `fedfair plan advise` takes cross-entropy alone
    "fedfair/report/advice_tables.py",
    "fedfair/studies/advice/document.py",
    "fedfair/studies/advice/words.py",
    "fedfair/certificate/sentences.py",
    "fedfair/results/json_schema.py",
    "fedfair/results/parts.py",
    "fedfair/results/verdict.py",
}


def test_nothing_takes_every_loss_for_one_in_nats() -> None:
    described = {id(node.value) for _, node in nodes(ast.Expr)}
    said = {
        place
        for place, node in nodes(ast.Constant)
        if isinstance(node.value, str)
        and "nats" in node.value
        and "nats" in re.split(r"[^a-z]+", node.value)
        and id(node) not in described
        and "reproduction" not in place
    }
    assert said - _OF_CLASSES_ALONE == set()


def test_no_module_outgrows_what_a_reader_can_hold() -> None:
    # 50 to 250 lines is the aim; what is longer needs to be split, or to be one clear table or one machine.
    long = {place: len((REPOSITORY / place).read_text().splitlines()) for place in _trees()}
    assert {place: count for place, count in long.items() if count > 600} == {}


def test_no_class_has_more_than_250_lines_and_no_function_more_than_60() -> None:
    def units(tree: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield node
                yield from units(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    found = {
        f"{place}:{unit.name}": (unit.end_lineno or 0) - unit.lineno + 1
        for place, tree in _trees().items()
        for unit in units(tree)
        if (unit.end_lineno or 0) - unit.lineno >= (250 if isinstance(unit, ast.ClassDef) else 60)
    }
    assert found == {}


def test_the_top_level_holds_only_what_the_architecture_names() -> None:
    tracked = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True, cwd=REPOSITORY)
    top = {line.split("/")[0] for line in tracked.stdout.splitlines()}
    allowed = {
        ".ci", ".gitignore", "CHANGELOG.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md", "SECURITY.md",
        "aggregator", "benchmarks", "certs", "collaborator", "constraints.txt", "docs", "examples", "fedfair",
        "mkdocs.yml", "proto", "pyproject.toml", "requirements", "supply", "tests",
    }  # fmt: skip
    assert top <= allowed


def _is_a_purpose(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Purpose"


def test_nothing_decides_by_the_purpose_of_a_sum() -> None:
    compared = [
        *((place, node, [node.left, *node.comparators]) for place, node in nodes(ast.Compare)),
        *((place, node, [node.value]) for place, node in nodes(ast.MatchValue)),
    ]
    deciding = {
        (place, node.lineno)
        for place, node, parts in compared
        if any(_is_a_purpose(part) for one in parts for part in ast.walk(one))
    }
    # The table of statistics tells by columns what a module may decide by.
    assert deciding == set()


def test_tests_import_what_they_share_by_its_whole_name() -> None:
    # A module that is imported under two names is two modules: each has its own classes and its own state.
    files = list((REPOSITORY / "tests").rglob("*.py"))
    shared = {path.stem for path in files} | {path.parent.name for path in files} - {"tests"} | {""}
    imported = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\b|import\s+(\w[\w., ]*))", re.MULTILINE)
    found = [
        f"{path.name}: {name}"
        for path in files
        for whole, several in imported.findall(path.read_text(encoding="utf-8"))
        for name in (whole or several).split(",")
        if name.strip().split(".")[0] in shared
    ]
    assert found == []


FOR_READERS_OF_THE_PAPER = {
    "fedfair/fairness/theory.py": {
        "convergence", "excess_risk", "joint_smoothness", "model_smoothness", "rcvar_of_bpf", "uniform_stability",
    },
}  # fmt: skip
"""The formulas of the paper are complete, for those who study it: a run needs some of them only."""

OVERRIDING = {"fedfair/process/terminal.py": {"on_broken_pipe"}, "fedfair/fairness/rcvar_loss.py": {"extra_repr"}}
"""What a library calls by its name."""


def _names(tree: ast.AST) -> set[str]:
    """Return every name that a module uses or imports."""
    nodes = [*ast.walk(tree)]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return used | {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}


def _called(template: Path) -> set[str]:
    """Return the functions that a template calls, and the attributes that it reads."""
    code = re.findall(r"\{[{%].*?[%}]\}", template.read_text(encoding="utf-8"), re.DOTALL)
    return {name for part in code for name in re.findall(r"\w+(?=\()|(?<=\.)\w+", part)}


def _own_names(tree: ast.AST) -> set[str]:
    """Return the functions of a script that are not the product's: its own, and its neighbours'."""
    nodes = [*ast.walk(tree)]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    ours = [
        node for node in imports if (node.module or "").split(".")[0] in {"fedfair", "aggregator", "collaborator"}
    ]
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    neighbours = {alias.name for node in imports if node not in ours for alias in node.names}
    return (defined | neighbours) - {alias.name for node in ours for alias in node.names}


def test_every_public_function_is_used_by_more_than_its_tests() -> None:
    # By name alone: another function of the same name, which is used, hides one that is not; not so in a script.
    scripts = [path for folder in ("benchmarks", "examples") for path in (REPOSITORY / folder).rglob("*.py")]
    used = set().union(*map(_names, _trees().values()))
    for tree in (ast.parse(path.read_text()) for path in scripts):
        used |= _names(tree) - _own_names(tree)
    # The commands of the command line are loaded by name, from a table.
    used |= {entry.attribute for entry in Commands.table.values()}
    used |= set().union(*map(_called, (REPOSITORY / "fedfair").rglob("*.jinja")))
    unused: dict[str, set[str]] = {}
    for place, tree in _trees().items():
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for node in itertools.chain(tree.body, *(owner.body for owner in classes)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                is_command = any("app." in ast.unparse(decorator) for decorator in node.decorator_list)
                if not (node.name.startswith("_") or node.name in used or is_command):
                    unused.setdefault(place, set()).add(node.name)
    reachable = {place: {name for name in names if not _is_public(place, name)} for place, names in unused.items()}
    assert {place: names for place, names in reachable.items() if names} == FOR_READERS_OF_THE_PAPER | OVERRIDING


TOLD_TO_READERS = {"fedfair/policy/disclosures.py": {"SUMS_ONLY"}, "fedfair/news/event.py": {"RESERVED"}}
"""Lists that a test holds the product to: all that is disclosed, and the keys of every line of a log."""


def test_every_constant_is_used_by_more_than_its_tests() -> None:
    # By name alone, as for functions; a member of an enumeration of the same name is no use of the constant.
    # A type that has a name is no constant: it is not written in capitals.
    used = {node.id for _, node in nodes(ast.Name) if isinstance(node.ctx, ast.Load)}
    used |= {node.attr for _, node in nodes(ast.Attribute) if not _is_of_a_class(node)}
    unused: dict[str, set[str]] = {}
    for place, tree in _trees().items():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = {
                inner.id
                for target in targets
                if target
                for inner in ast.walk(target)
                if isinstance(inner, ast.Name)
            }
            if gone := {name for name in names if name.isupper() and name not in used}:
                unused.setdefault(place, set()).update(gone)
    assert unused == TOLD_TO_READERS


def _is_of_a_class(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id[0].isupper() and not node.value.id.isupper()


def _is_public(place: str, name: str) -> bool:
    """Return whether a name is one of `import fedfair`, or a method of a class of it."""
    tree = _trees()[place]
    offered = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in fedfair.__all__]
    methods = {inner.name for owner in offered for inner in owner.body if isinstance(inner, ast.FunctionDef)}
    return name in fedfair.__all__ or (name in methods and name not in OVERRIDING.get(place, ()))


@pytest.mark.parametrize(
    ("file", "quick"),
    [
        ("plan/test_schema.py", True),
        ("secagg/test_shamir.py", True),
        ("fairness/test_rcvar.py", False),  # imports torch
        ("wire/test_generated.py", False),  # starts a process
        ("simulation/test_simulate.py", False),  # imports what imports torch
        ("interop/test_streams.py", False),
        ("attacks/test_blame.py", False),  # tests no one package
    ],
)
def test_make_quick_runs_what_loads_and_starts_nothing_slow(file: str, quick: bool) -> None:
    assert is_quick(REPOSITORY / "tests" / file) is quick


def _module(place: str) -> str:
    return place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports_of_modules() -> dict[str, set[str]]:
    """Return what every module imports of ours, by module.

    Imports for the type checker and imports inside functions count like any other: a circle that is only hidden
    until somebody calls or checks is a circle for the reader all the same.
    """
    modules = {_module(place) for place in _trees()}
    found: dict[str, set[str]] = {module: set() for module in modules}
    for place, node in nodes(ast.Import):
        found[_module(place)] |= {alias.name for alias in node.names} & modules - {_module(place)}
    for place, imported in nodes(ast.ImportFrom):
        whole = {f"{imported.module}.{alias.name}" for alias in imported.names}
        # `from package import module` needs the module, and the package only for the names that are its own.
        names = whole & modules or {imported.module or ""}
        found[_module(place)] |= names & modules - {_module(place)}
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    left = _imports_of_modules()
    while ready := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in ready}
    # What is left is in a circle, or imports what is.
    assert left == {}


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for place, tree in _trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_test_runs_python_between_a_fork_and_the_new_program() -> None:
    # Threads of gRPC do not survive the fork, and what they hold stays held: a limit is set by the program itself.
    asked = {
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path, tree in trees("tests", "preexec_fn").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and any(keyword.arg == "preexec_fn" for keyword in node.keywords)
    }
    assert asked == set()
