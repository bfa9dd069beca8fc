"""The results of several data sets in two tables, from the files that `fedfair reproduce` wrote for each.

A data set whose folder has no claims.json was run by an earlier version, whose figures do not compare. It is left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from fedfair.studies.reproduction.claims import CLAIMS
from fedfair.studies.reproduction.comparison import Verdict
from fedfair.studies.reproduction.methods import METHODS
from fedfair.studies.reproduction.study import Figure

SIGNS: Mapping[str, str] = {Verdict.HOLDS: "holds", Verdict.FAILS: "**no**", Verdict.UNDECIDED: "open"}


@dataclass(frozen=True, slots=True)
class StoredMark:
    """The part of a mark in marks.json that the tables need; other fields are not looked at."""

    study: str
    figure: str
    method: str
    worst_group_size: float
    uniform_floor: float
    test: Mapping[str, tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class StoredClaim:
    """The part of a claim in claims.json that the tables need; other fields are not looked at."""

    study: str
    claim: str
    verdict: str


_MARKS: TypeAdapter[list[StoredMark]] = TypeAdapter(list[StoredMark])
_CLAIMS: TypeAdapter[list[StoredClaim]] = TypeAdapter(list[StoredClaim])


def worst_tenths(folder: Path) -> str:
    """Return worst-group risk and mean of every study and method on test records, at its smallest group size.

    Args:
        folder: holds one folder for each data set.
    """
    lines = []
    for place in _places(folder):
        held = _MARKS.validate_json((place / "marks.json").read_bytes())
        studies = dict.fromkeys(mark.study for mark in held)
        lines += [_risks(place.name, [mark for mark in held if mark.study == study]) for study in studies]
    names = [METHODS[name].label for name in _COMPARED]
    return _table(["test records, in nats: worst group, everybody", *names, "uniform guess"], lines)


def verdicts(folder: Path) -> str:
    """Return what became of every claim on every data set; arguments as of `worst_tenths`."""
    columns: dict[str, dict[str, str]] = {}
    for place in _places(folder):
        for claim in _CLAIMS.validate_json((place / "claims.json").read_bytes()):
            columns.setdefault(f"[{claim.study}]({place.name}/index.html)", {})[claim.claim] = claim.verdict
    rows = [
        [f"{name}: {stated.words}", *(SIGNS.get(found.get(name, ""), "") for found in columns.values())]
        for name, stated in CLAIMS.items()
    ]
    return _table(["claim", *columns], rows)


_COMPARED = tuple(name for name in METHODS if name != "localbpf")


def _places(folder: Path) -> Iterator[Path]:
    return (path.parent for path in sorted(folder.glob("*/claims.json")))


def _risks(data_set: str, marks: Sequence[StoredMark]) -> list[str]:
    own = [mark for mark in marks if mark.figure == Figure.BASELINES]
    if not own:
        return [f"[{marks[0].study}]({data_set}/index.html)", *[""] * (len(_COMPARED) + 1)]
    size = min(mark.worst_group_size for mark in own)
    found = {mark.method: mark for mark in own if mark.worst_group_size == size}
    cells = [_risk(found[name], size) if name in found else "" for name in _COMPARED]
    return [f"[{own[0].study}]({data_set}/index.html), worst {size:.0%}", *cells, f"{own[0].uniform_floor:.3f}"]


def _risk(mark: StoredMark, size: float) -> str:
    found = [mark.test.get(figure) for figure in (f"worst_{size}", "mean")]
    return ", ".join("" if value is None else f"{value[0]:.3f}" for value in found)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
