"""No test ends a wait by a clock of its own: a busy machine stretches every one that is short.

A wait for what must happen has the time of `tests/patience.py`, which only a hang uses up. A deadline of the
product passes when the test says so (`tests/interop/federation_kit.py`), or its passing is the subject.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import REPOSITORY
from tests.patience import PATIENCE
from tests.trees import trees

TESTS = REPOSITORY / "tests"
POLL_SECONDS = 1.0
"""A wait up to this long is repeated until something has happened, or is the span that a test is about."""

BY_A_CLOCK = {
    "actors/test_upload_budget.py": "the server never answers, so the deadline of the call is what ends it",
    "interop/test_interruption.py": "a signal is sent again until the process has ended",
    "interop/test_half_open_lines.py": "gRPC itself finds a dead line within a minute: only sooner is proof",
}
"""Files whose subject is a span of time."""

EXPECTED_TO_PASS = {
    "interop/test_exit_statuses.py": "the run ends because its join deadline passes",
    "interop/test_federation_processes.py": "the run ends because its join deadline passes",
    "interop/test_control_variate_processes.py": "a killed process is not waited for",
    "interop/test_masked_processes.py": "a killed process is not waited for",
    "attacks/test_two_views_of_one_round.py": "a refused sum is lost in its one attempt",
    "interop/test_missed_end.py": "the words state the time, and the site returns at once",
    "rounds/rounds_play.py": "plays without a clock",
}
"""Files with a short deadline of the product, and what passes it."""

WAITS = {"wait", "join", "wait_for", "acquire", "result", "timeout"}
WAITING = r"\btimeout\b|\bwait_for\b|(?<![\"'])\.(wait|join|acquire|result)\([^)]"
DEADLINES = {"join_deadline_seconds", "round_deadline_seconds", "reconnect_grace_seconds"}


def seconds(node: ast.expr) -> float | None:
    """Return a number that is written down; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    return None


def short_waits(tree: ast.AST) -> Iterator[tuple[int, float]]:
    """Yield the line and the seconds of each wait that is shorter than a hang."""
    named = {
        node.targets[0].id: seconds(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        stated = [word.value for word in node.keywords if word.arg == "timeout"]
        if name in WAITS:
            stated += node.args[1:2] if name == "wait_for" else node.args[:1]
        for each in stated:
            found = named.get(each.id) if isinstance(each, ast.Name) else seconds(each)
            if found is not None and POLL_SECONDS < found < PATIENCE:
                yield node.lineno, found


def short_deadlines(tree: ast.AST) -> Iterator[tuple[int, float]]:
    """Yield the line and the seconds of each deadline that a slow start would miss; 0 waits for nobody."""
    for node in ast.walk(tree):
        pairs: list[tuple[object, ast.expr]] = []
        if isinstance(node, ast.Dict):
            pairs = [(key.value, value) for key, value in zip(node.keys, node.values, strict=True)
                     if isinstance(key, ast.Constant)]  # fmt: skip
        elif isinstance(node, ast.Call):
            pairs = [(word.arg, word.value) for word in node.keywords]
        for key, value in pairs:
            found = seconds(value)
            if key in DEADLINES and found is not None and 0.0 < found < PATIENCE / 2:
                yield value.lineno, found


def found_in(check: object, excused: dict[str, str], word: str) -> list[str]:
    """Return the places of the files that are not excused; without the word a file has nothing to look at."""
    assert callable(check)
    return [
        f"{path.relative_to(TESTS)}:{line}: {span:g} s"
        for path, tree in trees("tests", word).items()
        if str(path.relative_to(TESTS)) not in excused
        for line, span in check(tree)
    ]


def test_no_wait_of_a_test_is_shorter_than_a_hang() -> None:
    code = "A = 30\nprocess.communicate(timeout=60)\nprocess.wait(0.05)\nwait_for(it, A)"
    assert list(short_waits(ast.parse(code))) == [(2, 60.0), (4, 30.0)]
    assert found_in(short_waits, BY_A_CLOCK, WAITING) == []


def test_no_federation_of_a_test_has_a_deadline_that_a_busy_machine_misses() -> None:
    assert list(short_deadlines(ast.parse("plan(federation={'join_deadline_seconds': 1})"))) == [(1, 1.0)]
    assert found_in(short_deadlines, EXPECTED_TO_PASS, "|".join(DEADLINES)) == []


@pytest.mark.parametrize(("check", "excused"), [(short_waits, BY_A_CLOCK), (short_deadlines, EXPECTED_TO_PASS)])
def test_nothing_is_excused_without_need(check: object, excused: dict[str, str]) -> None:
    assert callable(check)
    idle = [name for name in excused if not list(check(ast.parse((TESTS / name).read_text(encoding="utf-8"))))]
    assert idle == []
