"""Renders the templates of a Helm chart, as far as the chart of this repository goes, and refuses the rest.

Known are values, `quote`, `toYaml ... | nindent N`, `if` and `range` over a mapping, each on a line of its own.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

_BLOCK = re.compile(r"^\s*\{\{- (?P<word>if|range|end)(?P<rest>[^}]*)\}\}\s*$")
_RANGE = re.compile(r"\$(\w+), \$(\w+) := (\.[\w.]+)")
_VALUE = re.compile(r"\{\{-? (?P<words>[^}]+?) \}\}")


def render(chart: Path, release: str, changes: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the documents of every template.

    Args:
        chart: its folder.
        release: the name of the release.
        changes: top-level values in place of those of `values.yaml`.

    Raises:
        ValueError: a template uses something that this renderer does not know, or a value that there is not.
    """
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    values = {**yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8")), **(changes or {})}
    known = {
        "Values": values,
        "Release": {"Name": release},
        "Chart": {"Name": about["name"], "AppVersion": about["appVersion"]},
    }
    found = []
    for template in sorted((chart / "templates").glob("*.yaml")):
        lines = template.read_text(encoding="utf-8").splitlines()
        found += [one for one in yaml.safe_load_all("\n".join(_lines(lines, known))) if one is not None]
    return found


def _lines(lines: list[str], known: Mapping[str, Any]) -> Iterator[str]:
    place = 0
    while place < len(lines):
        block = _BLOCK.match(lines[place])
        if block is None:
            yield _filled(lines[place], known)
            place += 1
            continue
        end = next(at for at in range(place, len(lines)) if lines[at].strip() == "{{- end }}")
        inner = lines[place + 1 : end]
        place = end + 1
        if block["word"] == "if":
            yield from _lines(inner, known) if _value(block["rest"].strip(), known) else ()
            continue
        each = _RANGE.search(block["rest"])
        if each is None:
            raise ValueError(f"{block[0]!r} is not known here")
        for name, value in _value(each[3], known).items():
            yield from _lines(inner, {**known, f"${each[1]}": name, f"${each[2]}": value})


def _filled(line: str, known: Mapping[str, Any]) -> str:
    def value(found: re.Match[str]) -> str:
        words = [word.strip() for word in found["words"].split("|")]
        match words:
            case [name]:
                return str(_value(name, known))
            case [name, "quote"]:
                return json.dumps(str(_value(name, known)))
            case [name, indent] if name.startswith("toYaml ") and indent.startswith("nindent "):
                text = yaml.safe_dump(_value(name.removeprefix("toYaml "), known))
                return "\n" + "\n".join(" " * int(indent.split()[1]) + each for each in text.splitlines())
        raise ValueError(f"{found[0]!r} is not known here")

    return _VALUE.sub(value, line)


def _value(name: str, known: Mapping[str, Any]) -> Any:  # noqa: ANN401 - YAML has every type
    if name.startswith("$"):
        return known[name]
    found: Any = known
    for part in name.removeprefix(".").split("."):
        if part not in found:
            raise ValueError(f"{name} has no value")
        found = found[part]
    return found
