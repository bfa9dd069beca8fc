"""A study's tables as rows of text, for a page and for a summary alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedfair.experiments.reproduction.claims import Finding, Verdict, written
from fedfair.experiments.reproduction.composition import Shares
from fedfair.experiments.reproduction.evidence import Evidence, Mark
from fedfair.experiments.reproduction.execution import Done
from fedfair.experiments.reproduction.methods import METHODS
from fedfair.experiments.reproduction.runs import KNOWN_GROUP_SIZES
from fedfair.experiments.reproduction.study import Figure, Values
from fedfair.experiments.sweep.figures import Spread

PAPER_A1: Mapping[tuple[str, float | None], tuple[str, str]] = {
    ("fedminmax", None): ("1.593 ± 0.23", "1.176 ± 0.08"),
    ("fedsrcvar", 0.1): ("0.713 ± 0.07", "0.698 ± 0.02"),
    ("fedsrcvar", 0.3): ("0.724 ± 0.06", "0.695 ± 0.05"),
    ("fedavg", None): ("1.768 ± 0.04", "1.037 ± 0.09"),
}
"""Table A.1 of the paper: worst 10 % and worst 30 %, by method and the group size that it was trained for."""

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
    """Return Table A.1, ours beside the paper's; None where the study has none."""
    marks = done.evidence.of(Figure.KNOWN_GROUPS)
    body = []
    for name in ("fedminmax", "fedsrcvar", "fedavg"):
        for mark in [mark for mark in marks if mark.cell.method == name]:
            knows = METHODS[name].knows_group_size
            if not knows and mark.cell.group_size != KNOWN_GROUP_SIZES[0]:
                continue
            paper = PAPER_A1[name, mark.cell.group_size if knows else None]
            trained = f" (trained for {mark.cell.group_size:.0%})" if knows else ""
            ours = [_text(mark.worst("test", size)) for size in KNOWN_GROUP_SIZES]
            body.append((METHODS[name].label + trained, ours[0], paper[0], ours[1], paper[1]))
    if not body:
        return None
    head = ("method", "worst 10 %", "paper", "worst 30 %", "paper")
    return Rows("Table A.1: test risks in nats; tradeoff 0.05 for FedSRCVaR.", head, tuple(body))


def composition(shares: Mapping[str, Shares]) -> Rows:
    """Return Table A.2, ours and the paper's in turn.

    Args:
        shares: by the words of the row, those of `PAPER_A2`.
    """
    head = ("", *(f"{race}, {'employed' if label else 'unemployed'}" for race, label in _A2_COLUMNS))
    body: list[tuple[str, ...]] = []
    for row, paper in PAPER_A2.items():
        if row in shares:
            body.append((row, *(f"{100 * shares[row].get(kind, 0.0):.1f}" for kind in _A2_COLUMNS)))
            body.append((f"{row}, paper", *paper))
    return Rows("Table A.2: who is in the worst group of the test records, in percent.", head, tuple(body))


def verdicts(found: Sequence[Finding]) -> Rows:
    """Return how often each claim came out how."""
    claims = {
        "C5": "more weight on the mean does not lower the worst-group risk (train)",
        "C6": "FedSRCVaR's worst-group risk is below that of FedAvg, AFL and FedMinMax",
        "C8": "more local steps do not lower the worst-group risk of the smallest group (train)",
        "C9": "FedSRCVaR's worst-group risk is below that of the central DRO and BPF (the paper: close to it)",
    }
    body = []
    for claim, sentence in claims.items():
        own = [finding.verdict for finding in found if finding.claim == claim]
        if own:
            counts = [str(own.count(verdict)) for verdict in (Verdict.HOLDS, Verdict.UNDECIDED, Verdict.FAILS)]
            body.append((f"{claim}: {sentence}", *counts))
    caption = (
        "Comparisons that came out so; a difference counts beyond two standard errors, and never where there is "
        "one repetition."
    )
    return Rows(caption, ("claim", "holds", "no difference to tell", "fails"), tuple(body))


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
        "Chosen on validation records: learning rate, and tradeoff where there is one; where the repetitions "
        "chose differently, each one's choice."
    )
    return Rows(caption, head, tuple(body))


def _setting(mark: Mark) -> str:
    """Return the settings of a mark; those of each repetition where they differ."""
    written_out = [_one_setting(settings) for settings in mark.settings]
    return written_out[0] if len(set(written_out)) == 1 else " / ".join(written_out)


def _one_setting(settings: Values) -> str:
    tradeoff = settings.get("tradeoff")
    return f"{settings['learning_rate']}" + ("" if tradeoff is None else f", {tradeoff}")


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
