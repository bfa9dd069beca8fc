"""Writes made-up discharge notes of one hospital of this example, as token ids; no patient is behind them.

Usage: python examples/notes/make_notes.py HOSPITAL FILE.csv [--notes N]

A note names three findings, each present or absent. A patient was readmitted (label 1) if at least two of them
are present, and now and then the other way round. Most notes are sentences ("patient has fever . denies cough .").
Some are in shorthand, with words of its own and the sign behind the word ("temp + cgh -"), more in one hospital
than in another.
"""

from __future__ import annotations

import argparse
import csv
import zlib
from pathlib import Path

import numpy as np

LENGTH = 18
PADDING, FIRST = "[PAD]", "[CLS]"
FINDINGS = ("fever", "cough", "oedema", "dyspnoea", "delirium", "bleeding", "sepsis", "falls", "pain", "anaemia")
SHORT = ("temp", "cgh", "oed", "sob", "conf", "bld", "sept", "fell", "pn", "hb")
PRESENT = (("patient", "has"), ("reports",), ("found", "with"), ("still", "has"))
ABSENT = (("no",), ("denies",), ("without",), ("free", "of"))
SIGNS = ("+", "-")
OPENINGS = (("admitted", "from", "home", "."), ("seen", "on", "ward", "."), ("elective", "stay", "."))
_PHRASES = (*PRESENT, *ABSENT, *OPENINGS)
WORDS = (PADDING, FIRST, *dict.fromkeys((*(word for one in _PHRASES for word in one), *FINDINGS, *SHORT, *SIGNS)))
IDS = {word: place for place, word in enumerate(WORDS)}

SHORTHAND = {"north": 0.05, "south": 0.08, "east": 0.25}
"""Share of the notes that are in shorthand."""

SURPRISES = {False: 0.05, True: 0.2}
"""Share of the patients for whom the findings do not tell: shorthand leaves more out."""


def note(shorthand: bool, draws: np.random.Generator) -> tuple[list[str], int]:
    """Return the words of one note, and its label."""
    likely = draws.choice([0.15, 0.75])  # a patient who is well, or one who is not
    chosen, present = draws.choice(len(FINDINGS), 3, replace=False), draws.random(3) < likely
    words = [FIRST]
    if not shorthand:
        words += OPENINGS[draws.integers(len(OPENINGS))]
    for finding, there in zip(chosen, present, strict=True):
        if shorthand:
            words += (SHORT[finding], SIGNS[0] if there else SIGNS[1])
        else:
            phrases = PRESENT if there else ABSENT
            words += (*phrases[draws.integers(len(phrases))], FINDINGS[finding], ".")
    return words, int((present.sum() >= 2) != (draws.random() < SURPRISES[shorthand]))


def notes(number: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return token ids (number, LENGTH) and labels (number,); a share of the notes is in shorthand."""
    draws = np.random.default_rng(seed)
    ids, labels = np.full((number, LENGTH), IDS[PADDING]), np.empty(number, np.int64)
    for row in range(number):
        words, labels[row] = note(bool(draws.random() < share), draws)
        ids[row, : len(words)] = [IDS[word] for word in words]
    return ids, labels


def main() -> None:
    """Write the notes of one hospital."""
    parser = argparse.ArgumentParser(description="Made-up notes of one hospital, as token ids.")
    parser.add_argument("hospital", choices=sorted(SHORTHAND))
    parser.add_argument("file", type=Path)
    parser.add_argument("--notes", type=int, default=240)
    asked = parser.parse_args()
    ids, labels = notes(asked.notes, SHORTHAND[asked.hospital], zlib.crc32(asked.hospital.encode()))
    asked.file.parent.mkdir(parents=True, exist_ok=True)
    with asked.file.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*(f"t{place}" for place in range(LENGTH)), "readmitted"])
        table.writerows([*row, label] for row, label in zip(ids.tolist(), labels.tolist(), strict=True))


if __name__ == "__main__":
    main()
