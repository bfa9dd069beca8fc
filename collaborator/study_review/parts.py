"""The parts of a study that people read: what it is, the policy, the records, the ledger, code and weights.

Each part is made of what was found, and of nothing else, so the same finding is shown alike on a terminal and on
the page. Texts that others chose (a plan's words, names, code) are shown as texts, whatever they hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml

from collaborator.computing.confinement import NETWORK
from collaborator.computing.place import reads_a_database
from collaborator.continued_run import begins_with_own_run
from collaborator.study_review.blocks import Block, Lines, SourceText, TableBlock, Tone
from collaborator.study_review.examination import Examination
from collaborator.study_review.proposal import StudyProposal
from fedfair.aggregation.masking_terms import exposures, guarantee, masking_cost
from fedfair.errors import FedfairError
from fedfair.ids import ParticipantId
from fedfair.plan.derived import given_references
from fedfair.plan.description import summary
from fedfair.plan.digest import code_digest, format_digest
from fedfair.plan.loading import workspace_of
from fedfair.plan.module_code import code_digests
from fedfair.plan.schema import Plan
from fedfair.policy.disclosures import MEANING, of_run
from fedfair.policy.site_config import SiteConfig
from fedfair.policy.site_worker import COMMAND, WorkerSection
from fedfair.policy.terms import AskedTerms, Term, terms
from fedfair.report.plan_review import plan_review
from fedfair.tables.profile import share
from fedfair.workspace.archive import exported

MAX_SHOWN_BYTES = 1 << 20
"""Of a file that is shown as text; a longer one is named by its digest."""


class ReviewPart(StrEnum):
    """One part of a study, by the word in its address."""

    STUDY = "study"
    POLICY = "policy"
    RECORDS = "records"
    LEDGER = "ledger"
    CODE = "code"


TITLES: Mapping[ReviewPart, str] = {
    ReviewPart.STUDY: "The study in words",
    ReviewPart.POLICY: "Policy, term by term",
    ReviewPart.RECORDS: "This site's records",
    ReviewPart.LEDGER: "The ledger: what it has, what this would spend",
    ReviewPart.CODE: "Code and weights",
}


@dataclass(frozen=True, slots=True)
class StudyFiles:
    """A study's plan beside the site that is asked.

    Attributes:
        plan: as it was read.
        plan_file: its file in the study's workspace.
        config: the site's own file, as it was read.
        home: the folder of that file.
    """

    plan: Plan
    plan_file: Path
    config: SiteConfig
    home: Path


def study_blocks(files: StudyFiles, proposal: StudyProposal) -> Iterator[Block]:
    """Yield who proposes the study, what it computes, and what it makes known."""
    plan = files.plan
    yield TableBlock(
        "Who proposes it",
        (),
        (
            ("proposed by", proposal.by),
            ("when", proposal.at),
            ("words", proposal.words or "none"),
            ("federation", f"{proposal.federation}: {', '.join(plan.federation.collaborators)}"),
            ("plan", proposal.plan_digest),
        ),
    )
    if open_ends := exposures(plan):
        yield Lines("Know first", tuple(f"{sentence}." for sentence in open_ends), Tone.WARNING)
    review = plan_review(plan, files.plan_file)
    if review.warnings:
        yield Lines("Probably not meant", review.warnings, Tone.WARNING)
    masks = (("guarantee", guarantee(plan)), ("masks", masking_cost(plan)))
    yield TableBlock("What it does", (), tuple((name, words) for name, words in (*summary(plan), *masks) if words))
    known = tuple((kind, MEANING[kind], asked) for kind, asked in of_run(plan).items())
    yield TableBlock("What it makes known", ("kind", "what that is", "asked for by"), known)
    if review.notes:
        yield Lines("Notes", review.notes)
    whole = yaml.safe_dump(plan.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    yield SourceText("The plan with every default filled in", whole.rstrip())


def policy_terms(files: StudyFiles) -> tuple[Term, ...]:
    """Return every term of the site's policy that the plan touches; no code of the plan is run.

    Raises:
        FedfairError: the plan begins elsewhere than this site's own copy of a run says, or its code is not there.
    """
    plan, home, name = files.plan, files.home, ParticipantId(files.config.collaborator)
    own_run = False
    if plan.training.initial is not None or given_references(plan) is not None:
        own_run = begins_with_own_run(home / "runs" / name, home / "state", name, plan)
    asked = AskedTerms(plan, _code_digest(files), own_run=own_run)
    return tuple(terms(asked, files.config.policy))


def policy_blocks(files: StudyFiles) -> Iterator[Block]:
    """Yield the policy beside what the plan asks."""
    try:
        held = policy_terms(files)
    except FedfairError as fault:
        yield Lines("", (fault.diagnostics(),), Tone.FAULT)
        return
    broken = tuple(number for number, term in enumerate(held) if not term.kept)
    if broken:
        faults = tuple(f"{held[number].fault}; {held[number].change}" for number in broken)
        yield Lines("The policy in collaborator.yaml refuses", faults, Tone.FAULT)
    else:
        yield Lines("", ("The policy in collaborator.yaml allows every term of this plan.",), Tone.GOOD)
    rows = tuple(("✓" if term.kept else "✗", term.key, term.asked, term.allowed) for term in held)
    yield TableBlock("", ("", "term", "the plan asks", "this site allows"), rows, broken)


def records_blocks(found: Examination) -> Iterator[Block]:
    """Yield what `fedfair data check` shows of this site's records, as this plan reads them."""
    for step, heading in (("data", "A start would refuse"), ("history", "The history refuses")):
        if step in found.faults:
            yield Lines(heading, (found.faults[step],), Tone.FAULT)
    data = found.data
    if not data:
        return
    yield TableBlock("Records", (), tuple(_sizes(data)))
    numeric, categories = _rows(data, "numeric"), _rows(data, "categories")
    if numeric:
        columns = ("column", "missing", "least", "median", "greatest", "mean", "outside of its range")
        yield TableBlock("Numeric columns", columns, tuple(_number_row(one) for one in numeric))
    if categories:
        shares = ("column", "shares of its values", "missing")
        yield TableBlock("Categorical columns", shares, tuple(_category_row(one) for one in categories))
    warnings = data.get("warnings")
    if isinstance(warnings, list) and warnings:
        yield Lines("Look at these", tuple(map(str, warnings)), Tone.WARNING)


def ledger_blocks(found: Examination, files: StudyFiles) -> Iterator[Block]:
    """Yield what the ledger has, and what this study would add to it."""
    if "ledger" in found.faults:
        yield Lines("A start would refuse", (found.faults["ledger"],), Tone.FAULT)
    budget = files.config.budget
    kept = "none is stated" if budget is None else f"epsilon {budget.epsilon:g} at delta {budget.delta:g}"
    rows = [("budget", kept), *(("so far", words) for words in found.spent)]
    if not found.spent:
        rows.append(("so far", "nothing was released under any plan, as far as the ledger knows"))
    rows += [("this study", words) for words in found.cost]
    if "data" in found.faults:
        rows.append(("this study", "unknown: its cost depends on this site's records, which cannot be read"))
    elif not found.cost and "ledger" not in found.faults:
        rows.append(("this study", "adds no noise for single records, and this site keeps no ledger"))
    yield TableBlock("Privacy", (), tuple(rows))
    if found.releases:
        columns = ("data set", "federation", "plan", "released", "entries", "last")
        yield TableBlock("Releases so far", columns, found.releases)


def code_blocks(files: StudyFiles, proposal: StudyProposal, found: Examination) -> Iterator[Block]:
    """Yield every file that came with the study: digests of all, and the texts of the code."""
    if "digest" in found.faults:
        yield Lines("The digest could not be computed", (found.faults["digest"],), Tone.FAULT)
    elif found.plan_digest and found.plan_digest != proposal.plan_digest:
        words = f"what arrived has digest {found.plan_digest}, the proposal is of {proposal.plan_digest}"
        yield Lines("These are other files than the proposed ones", (words,), Tone.FAULT)
    try:
        code = _code_digest(files)
        runs = "none: the plan names no code of its own" if code is None else format_digest(code)
    except FedfairError as fault:
        runs = fault.message
    rows = (("plan as proposed", proposal.plan_digest), ("plan as computed here", found.plan_digest or "unknown"))
    yield TableBlock(
        "Digests", (), (*rows, ("code that would run here", runs), ("archive", proposal.archive_digest))
    )
    over = (NETWORK,) if reads_a_database(files.config) else ()
    yield where_it_computes(files.config.worker, (*over, *found.missing))
    contents = study_files(files.plan_file)
    columns = ("file", "bytes", "SHA-256")
    yield TableBlock(
        "Files", columns, tuple((name, str(size), digest) for name, (size, digest) in contents.items())
    )
    workspace = workspace_of(files.plan_file)
    for name in contents:
        if name.startswith("src/"):
            yield SourceText(name, _text(workspace / name))


def where_it_computes(worker: WorkerSection, missing: tuple[str, ...]) -> Lines:
    """Return in which process the study's code would run here, and every protection that is missing there.

    Args:
        worker: as the site states it; a study that it says nothing of has a process of its own.
        missing: a sentence for each protection that this system does not offer.
    """
    heading = "Where it computes"
    if "process" in worker.model_fields_set and not worker.process:
        said = "in the process that has the keys, as worker.process: false says: it can do all that this user can"
        return Lines(heading, (said,), Tone.WARNING)
    if worker.launch != COMMAND:
        said = "a process of its own, started elsewhere: `fedfair collaborator check` says what is missing there"
        return Lines(heading, (said,))
    told = "a process of its own, without keys and ledger"
    return Lines(heading, (told, *missing), Tone.WARNING if missing else Tone.GOOD)


def study_files(plan_file: Path) -> dict[str, tuple[int, str]]:
    """Return length and SHA-256 of every file that came with a study, by its path in the workspace."""
    workspace = workspace_of(plan_file)
    found = {}
    for name in sorted(exported(workspace)):
        with (workspace / name).open("rb") as source:
            found[name] = (workspace / name).stat().st_size, hashlib.file_digest(source, "sha256").hexdigest()
    return found


def _code_digest(files: StudyFiles) -> bytes | None:
    references = files.plan.task.references
    return code_digest(code_digests(references, workspace_of(files.plan_file))) if references else None


def _text(path: Path) -> str:
    if path.stat().st_size > MAX_SHOWN_BYTES:
        return f"(more than {MAX_SHOWN_BYTES} bytes: compare the digest)"
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return "(not a text: compare the digest)"


def _rows(data: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    found = data.get(name)
    return found if isinstance(found, list) else []


def _sizes(data: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    yield "records", str(data["records"])
    splits, labels = data["splits"], data["labels"]
    if isinstance(splits, Mapping) and splits:
        yield "of these", ", ".join(f"{count} {name}" for name, count in splits.items())
    if isinstance(labels, Mapping) and labels:
        total = sum(labels.values())
        yield "labels", ", ".join(f"{name} {share(count, total)}" for name, count in labels.items())
    unused = data["unused"]
    if isinstance(unused, list) and unused:
        yield "not used by the plan", ", ".join(map(str, unused))


def _number_row(column: Mapping[str, object]) -> tuple[str, ...]:
    quartiles = column["quartiles"]
    median = quartiles[1] if isinstance(quartiles, list) else None
    missing, present = column["missing"], column["present"]
    places = (column["least"], median, column["greatest"], column["mean"])
    outside = "-" if column["range"] is None else str(column["outside"])
    whole = int(str(missing)) + int(str(present))
    figures = ("-" if place is None else f"{float(str(place)):.4g}" for place in places)
    return (str(column["name"]), share(int(str(missing)), whole), *figures, outside)


def _category_row(column: Mapping[str, object]) -> tuple[str, ...]:
    counts, missing = column["counts"], int(str(column["missing"]))
    counted = {str(value): int(count) for value, count in counts.items()} if isinstance(counts, Mapping) else {}
    total = sum(counted.values()) + missing
    shares = ", ".join(f"{value} {share(count, total)}" for value, count in counted.items())
    return str(column["name"]), shares, share(missing, total)
