"""A study's tables as rows of text, for a page and for a summary alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedfair.studies.reproduction.claims import CLAIMS, NEAR, TOLERANCE, Decision, written
from fedfair.studies.reproduction.comparison import LEVEL
from fedfair.studies.reproduction.conclusions import Shares
from fedfair.studies.reproduction.evidence import Evidence, Mark
from fedfair.studies.reproduction.execution import Done
from fedfair.studies.reproduction.methods import METHODS
from fedfair.studies.reproduction.runs import KNOWN_GROUP_SIZES
from fedfair.studies.reproduction.study import Figure, Values
from fedfair.studies.sweep.figures import Spread

PAPER_A1: Mapping[tuple[str, float | None], tuple[str, str]] = {
    ("fedminmax", None): ("1.593 ± 0.23", "1.176 ± 0.08"),
    ("fedsrcvar", 0.1): ("0.713 ± 0.07", "0.698 ± 0.02"),
    ("fedsrcvar", 0.3): ("0.724 ± 0.06", "0.695 ± 0.05"),
    ("fedavg", None): ("1.768 ± 0.04", "1.037 ± 0.09"),
}
"""Table A.1 of the paper: worst 10 % and worst 30 %, by algorithm and the group size that it was trained for."""

PAPER_A2: Mapping[str, tuple[str, ...]] = {
    "worst 10 %": ("48.6", "14.9", "4.3", "1.2", "24.1", "6.9"),
    "worst 30 %": ("30.2", "30.7", "2.6", "2.0", "17.8", "16.7"),
    "everybody": ("33.4", "27.9", "2.9", "1.9", "18.3", "15.6"),
}
"""Table A.2 of the paper, in percent: white, black, other; each unemployed and employed."""

_A2_COLUMNS = tuple((race, label) for race in ("white", "black", "other") for label in (0, 1))


@dataclass(frozen=True, slots=True)
class Rows:
    """One table.

    Attributes:
        caption: what it shows.
        head: the heads of the columns.
        body: rows of as many cells.
    """

    caption: str
    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]


def worst_groups(done: Done) -> Rows:
    """Return every method's worst-group risks on training and test records, beside its mean and the floor."""
    sizes = _nearest(done.size.group_sizes)
    head = ["method"]
    head += [f"{split} worst {size:.0%}" for split in ("train", "test") for size in sizes]
    head += ["test mean", "test accuracy"]
    rows = [
        (METHODS[name].label, *_risks(done.evidence, name, sizes))
        for name in done.study.methods
        if done.evidence.of(Figure.BASELINES, method=name)
    ]
    floors = {mark.uniform_floor for mark in done.evidence.marks}
    rows += [("uniform guess", *[f"{floor:.3f}"] * (2 * len(sizes) + 1), "") for floor in floors]
    caption = (
        "Mean loss in nats, mean over the repetitions ± one standard error. A method that knows the group size "
        "was trained for the size in its column. Its mean and accuracy are those of its model for the smallest "
        "size. Where a risk is above that of the uniform guess, guessing would serve the group better."
    )
    return Rows(caption, tuple(head), tuple(rows))


def known_groups(done: Done) -> Rows | None:
    """Return Table A.1, beside the paper's where it is about this study; None where the study has none."""
    marks, paper = done.evidence.of(Figure.KNOWN_GROUPS), done.study.paper_tables
    body: list[tuple[str, ...]] = []
    for name in done.study.methods:
        for mark in [mark for mark in marks if mark.cell.method == name]:
            method = METHODS[name]
            if not method.knows_group_size and mark.cell.group_size != KNOWN_GROUP_SIZES[0]:
                continue
            trained = f" (trained for {mark.cell.group_size:.0%})" if method.knows_group_size else ""
            row = [method.label + trained]
            trained_for = mark.cell.group_size if method.knows_group_size else None
            published = PAPER_A1[method.algorithm, trained_for] if method.in_paper else ("", "")
            for size, theirs in zip(KNOWN_GROUP_SIZES, published, strict=True):
                row += [_text(mark.worst("test", size)), *([theirs] if paper else [])]
            body.append(tuple(row))
    if not body:
        return None
    columns = [part for words in ("worst 10 %", "worst 30 %") for part in (words, *(["paper"] if paper else []))]
    caption = "Table A.1: test risks in nats; tradeoff 0.05 for FedSRCVaR."
    return Rows(caption, ("method", *columns), tuple(body))


def composition(shares: Mapping[str, Shares], *, paper: bool) -> Rows:
    """Return Table A.2.

    Args:
        shares: by the words of the row, those of `PAPER_A2`.
        paper: whether the paper's own rows belong beside these.
    """
    there = [kind for row in shares.values() for kind in row]
    kinds = _A2_COLUMNS if paper else tuple(dict.fromkeys(sorted(there)))
    body: list[tuple[str, ...]] = []
    for row, published in PAPER_A2.items():
        if row in shares:
            body.append((row, *(f"{100 * shares[row].get(kind, 0.0):.1f}" for kind in kinds)))
            body += [(f"{row}, paper", *published)] if paper else []
    labels = {0: "unemployed", 1: "employed"} if paper else {}
    head = ("", *(f"{group}, {labels.get(label, f'label {label}')}" for group, label in kinds))
    caption = "Table A.2: who is in the worst group of the test records, by group and label, in percent."
    return Rows(caption, head, tuple(body))


def claims(found: Sequence[Decision]) -> Rows:
    """Return what became of every claim, and why."""
    body = tuple((f"{one.claim}: {CLAIMS[one.claim].words}", one.verdict.value, one.reason) for one in found)
    caption = (
        f"The paper's claims, decided by Welch's t test at a level of {LEVEL:.0%}. A claim holds if each of its "
        "comparisons rejects the opposite; it does not hold if one of them rejects the claim after Holm's "
        f"correction. One risk is not above another if it exceeds it by less than {TOLERANCE:.1%} of the loss of "
        f"guessing. Two are alike if they are less than {NEAR:.0%} of it apart."
    )
    return Rows(caption, ("claim", "verdict", "what decided it, or why nothing did"), body)


def verdict_counts(found: Sequence[Decision]) -> Rows:
    """Return every claim's verdict, for a terminal."""
    body = tuple((one.claim, one.verdict.value) for one in found)
    return Rows("The paper's claims", ("claim", "verdict"), body)


def chosen_settings(done: Done) -> Rows:
    """Return what validation records chose for every method and group size: learning rate, and tradeoff if any."""
    sizes = sorted({mark.cell.group_size for mark in done.evidence.of(Figure.BASELINES)})
    body = []
    for name in done.study.methods:
        cells = [done.evidence.of(Figure.BASELINES, method=name, group_size=size) for size in sizes]
        if any(cells):
            body.append((METHODS[name].label, *(_setting(marks[0]) if marks else "" for marks in cells)))
    head = ("method", *(f"for the worst {size:.0%}" for size in sizes))
    caption = (
        "Chosen on validation records by the method's own objective: learning rate, and tradeoff or learning rate "
        "of the adversary where there is one. Where the repetitions chose differently, each one's choice stands."
    )
    return Rows(caption, head, tuple(body))


def _setting(mark: Mark) -> str:
    """Return the settings of a mark; those of each repetition where they differ."""
    written_out = [_one_setting(settings) for settings in mark.settings]
    return written_out[0] if len(set(written_out)) == 1 else " / ".join(written_out)


def _one_setting(settings: Values) -> str:
    more = [settings[name] for name in ("tradeoff", "adversary_learning_rate") if name in settings]
    return ", ".join(str(value) for value in (settings.get("learning_rate", "default rate"), *more))


def _nearest(sizes: Sequence[float]) -> tuple[float, ...]:
    return tuple(size for size in (0.1, 0.3) if size in sizes) or tuple(sizes[:1])


def _risks(found: Evidence, method: str, sizes: Sequence[float]) -> Iterator[str]:
    marks = {size: found.of(Figure.BASELINES, method=method, group_size=size) for size in sizes}
    for split in ("train", "test"):
        for size in sizes:
            yield _text(marks[size][0].worst(split)) if marks[size] else ""
    first: list[Mark] = marks[sizes[0]]
    yield _text(first[0].test.get("mean")) if first else ""
    yield _text(first[0].test.get("accuracy")) if first else ""


def _text(value: Spread | None) -> str:
    return "" if value is None else written(value)
