"""A unit of systemd, read as far as its tests need it: sections, settings that repeat, and specifiers."""

import re
from collections.abc import Mapping
from pathlib import Path

Settings = dict[str, list[str]]


def read_unit(path: Path) -> dict[str, Settings]:
    """Return every setting of each section, in the order of the lines.

    Raises:
        ValueError: a line is no setting, and no comment.
    """
    sections: dict[str, Settings] = {}
    settings: Settings = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("["):
            settings = sections.setdefault(line.strip("[]"), {})
            continue
        name, stands, value = line.partition("=")
        if not stands:
            raise ValueError(f"{path.name}: {line!r} is no setting")
        settings.setdefault(name, []).append(value)
    return sections


def only(settings: Settings, name: str) -> str:
    """Return the value of a setting that is there once."""
    (value,) = settings[name]
    return value


def expanded(text: str, specifiers: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return a text with its specifiers and variables replaced; an unknown one is a KeyError."""
    text = re.sub(r"%(.)", lambda found: specifiers[found[1]], text)
    return re.sub(r"\$\{(\w+)\}", lambda found: environment[found[1]], text)
