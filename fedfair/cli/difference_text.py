"""The difference of two workspaces as a terminal and a program show it: `fedfair plan diff`, an update, a join."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table
from rich.text import Text

from fedfair.plan.difference import ABSENT, Concern
from fedfair.plan.schema import Plan
from fedfair.process.terminal import console, say
from fedfair.workspace.difference import ChangedFile, WorkspaceDifference, WorkspaceSide

FORMAT = "fedfair/plan-diff/1"
NO_DIFFERENCE = "nothing: the digest is the same, so approvals stay valid"
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def digest_of_plan(plan: Plan, workspace: Path) -> bytes:
    """Return what sites approve; the plan names no code of its own."""
    from fedfair.training.binding import plan_binding  # torch takes seconds to load

    return plan_binding(plan, workspace).digest


def show_difference(found: WorkspaceDifference) -> None:
    """Print a difference: keys, statements, code, digests, and what has to be approved again."""
    if found.is_same:
        say(f"{found.old.name} and {found.new.name} state the same plan and code")
    if found.keys:
        console.print(_keys_table(found))
    for line in _sentence_lines(found):
        console.print(line, soft_wrap=True)
    for changed in found.files:
        _show_file(changed)
    for label, side in (("old", found.old), ("new", found.new)):
        say(f"{label} {_digest_words(side)} ({side.name})")
    say(f"to approve again: {approval_words(found)}")


def approval_words(found: WorkspaceDifference) -> str:
    """Return what sites must approve again."""
    if found.keeps_approvals:
        return NO_DIFFERENCE
    parts = [word for word, changed in (("the plan", found.keys), ("its code", _code_differs(found))) if changed]
    return f"{' and '.join(parts) or 'the plan'}, by every site; approvals of the old digest are void"


def difference_json(found: WorkspaceDifference) -> str:
    """Return the same for programs."""
    keys = [
        {
            "key": key.key,
            **{name: value for name, value in (("old", key.old), ("new", key.new)) if value is not ABSENT},
            "concern": key.concern.value,
        }
        for key in found.keys
    ]
    statements = [
        {"heading": one.heading, "old": one.old, "new": one.new, "concern": one.concern.value}
        for one in found.sentences
    ]
    files = [{"path": one.path, "change": one.change, "diff": list(one.lines)} for one in found.files]
    return json.dumps(
        {
            "format": FORMAT,
            "same": found.is_same,
            "approvals_stay_valid": found.keeps_approvals,
            "old": _side_json(found.old),
            "new": _side_json(found.new),
            "keys": keys,
            "statements": statements,
            "files": files,
        }
    )


def _side_json(side: WorkspaceSide) -> dict[str, str | None]:
    return {"name": side.name, "plan_digest": side.digest or None, "code_digest": side.code_digest or None}


def _code_differs(found: WorkspaceDifference) -> bool:
    return found.old.code_digest != found.new.code_digest


def _keys_table(found: WorkspaceDifference) -> Table:
    table = Table("changed key", box=None, pad_edge=False)
    for heading in ("old", "new"):
        table.add_column(heading, overflow="fold")
    table.add_column("is about")
    for key in found.keys:
        table.add_row(Text(key.key), Text(_value(key.old)), Text(_value(key.new)), Text(key.concern.value))
    return table


def _value(value: object) -> str:
    if value is ABSENT:
        return "(none)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _sentence_lines(found: WorkspaceDifference) -> Iterator[Text]:
    for concern in Concern:
        told = [sentence for sentence in found.sentences if sentence.concern is concern]
        if told:
            yield Text(f"{concern.value}:", style="bold")
        for sentence in told:
            yield Text(f"  {sentence.heading}")
            yield Text(f"    old: {sentence.old or '(none)'}")
            yield Text(f"    new: {sentence.new or '(none)'}")


def _show_file(changed: ChangedFile) -> None:
    say(f"{changed.change}: {changed.path}")
    for line in changed.lines:
        say(line, _STYLES.get(line[:1], ""))


def _digest_words(side: WorkspaceSide) -> str:
    code = f", code {side.code_digest}" if side.code_digest else ""
    if side.digest:
        return f"digest {side.digest}{code}"
    unknown = "its own code would have to run" if side.code_digest else "only its data can tell the model's input"
    return f"digest not computed: {unknown}{code}"
