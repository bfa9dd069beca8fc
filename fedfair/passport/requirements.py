"""The questions of laws and model cards that statements answer, and those that no file of fedfair can.

Sources: Regulation (EU) 2024/1689 (AI Act), in force since August 2024; Regulation (EU) 2016/679 (GDPR); Mitchell
et al. 2019, "Model cards for model reporting"; the SATRE specification of trusted research environments. The
mapping says where an answer is, not that it is enough: that is for whoever must comply.
"""

from __future__ import annotations

from dataclasses import dataclass

ACT = "Regulation (EU) 2024/1689"
GDPR = "Regulation (EU) 2016/679"
CARD = "Model card"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One question.

    Attributes:
        name: of it, on the page.
        source: the law or form, with the article or section.
        title: what it asks.
        statements: the names of the statements that answer; empty where no file of fedfair does.
    """

    name: str
    source: str
    title: str
    statements: tuple[str, ...]


REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement("act-9", f"{ACT}, Article 9", "risk management system", ()),
    Requirement(
        "act-10-2",
        f"{ACT}, Article 10(2)",
        "origin, collection and preparation of data; gaps",
        ("data", "agreement"),
    ),
    Requirement(
        "act-10-2-f", f"{ACT}, Article 10(2)(f)", "examination of possible biases", ("groups", "certificate")
    ),
    Requirement(
        "act-10-3",
        f"{ACT}, Article 10(3)",
        "data relevant, representative, as free of errors as possible",
        ("data", "accuracy"),
    ),
    Requirement(
        "act-11",
        f"{ACT}, Article 11 and Annex IV(1)",
        "general description and intended purpose",
        ("purpose", "model", "software"),
    ),
    Requirement(
        "act-iv-2-b",
        f"{ACT}, Annex IV(2)(a, b)",
        "methods of development, and what is optimised",
        ("agreement", "model"),
    ),
    Requirement("act-iv-2-d", f"{ACT}, Annex IV(2)(d)", "data sheets", ("data",)),
    Requirement(
        "act-iv-2-g",
        f"{ACT}, Annex IV(2)(g)",
        "validation, metrics, discriminatory impacts, signed test reports",
        ("accuracy", "groups", "certificate"),
    ),
    Requirement("act-12", f"{ACT}, Article 12", "record-keeping", ("transcript", "agreement")),
    Requirement(
        "act-13-3-b-ii",
        f"{ACT}, Article 13(3)(b)(ii)",
        "level of accuracy, with its metrics",
        ("accuracy", "calibration", "sets"),
    ),
    Requirement(
        "act-13-3-b-v",
        f"{ACT}, Article 13(3)(b)(v)",
        "performance for specific persons or groups",
        ("groups", "certificate"),
    ),
    Requirement(
        "act-13-3-b-vi", f"{ACT}, Article 13(3)(b)(vi)", "specification of the input data", ("model", "data")
    ),
    Requirement("act-14", f"{ACT}, Article 14", "human oversight", ("purpose",)),
    Requirement("act-15-1", f"{ACT}, Article 15(1)", "appropriate level of accuracy", ("accuracy",)),
    Requirement(
        "act-15-5",
        f"{ACT}, Article 15(5)",
        "resilience against attacks on confidentiality",
        ("release", "privacy"),
    ),
    Requirement(
        "act-13-3-b-vii", f"{ACT}, Article 13(3)(b)(vii)", "how to interpret its output", ("calibration", "sets")
    ),
    Requirement("act-17", f"{ACT}, Article 17", "quality management system", ()),
    Requirement("act-72", f"{ACT}, Article 72", "post-market monitoring", ()),
    Requirement("card-details", f"{CARD}, model details", "who made it, when, how", ("model", "purpose")),
    Requirement("card-use", f"{CARD}, intended use", "uses, and what is out of scope", ("purpose",)),
    Requirement(
        "card-factors",
        f"{CARD}, factors and metrics",
        "groups, and how performance is measured",
        ("groups", "accuracy"),
    ),
    Requirement("card-data", f"{CARD}, training and evaluation data", "of whom", ("data", "agreement")),
    Requirement(
        "card-analyses", f"{CARD}, quantitative analyses", "by group and across them", ("groups", "certificate")
    ),
    Requirement(
        "card-limits",
        f"{CARD}, ethical considerations and caveats",
        "limits and recommendations",
        ("accuracy", "purpose"),
    ),
    Requirement("gdpr-7-3", f"{GDPR}, Article 7(3)", "consent that was withdrawn", ("withdrawals",)),
    Requirement("satre-3-3-07", "SATRE 3.3.07", "may this output leave the environment", ("release", "privacy")),
)
"""In the order of a passport."""
