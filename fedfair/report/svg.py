"""A picture on its way from Matplotlib's file into a page, or into a file that suits light and dark.

Decides which colours pictures and pages share, and makes a picture a good neighbour: its ids are its own, its
colours are CSS variables, and it says in words what it shows to those who cannot see it.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from markupsafe import Markup

from fedfair.process.printable import printable

INK, SOFT, LINE = "#1b2430", "#5a6675", "#d5dbe2"

PALETTE = {
    INK: ("ink", "#e8edf3"),
    SOFT: ("soft", "#a3afbd"),
    LINE: ("line", "#35414e"),
    "#0072b2": ("series-1", "#62b6ee"),
    "#c24e00": ("series-2", "#ff9a57"),
    "#00805c": ("series-3", "#3fd0a4"),
    "#a3438a": ("series-4", "#e59bd0"),
    "#8a6800": ("series-5", "#e0b84a"),
    "#3a86b8": ("series-6", "#9fd3f5"),
    "#55606c": ("series-7", "#b4bcc6"),
}
"""For each colour on white paper: the name of its CSS variable, and its counterpart on a dark page."""

_VARIABLES = {colour: f"var(--{name},{colour})" for colour, (name, _) in PALETTE.items()}
_COLOUR = re.compile("|".join(_VARIABLES))
_FONT = re.compile(r"font-family:[^;]*;?\s*")


def palette_css() -> str:
    """Return the CSS variables that pictures and pages share, for light and dark."""
    light = ";".join(f"--{name}:{colour}" for colour, (name, _) in PALETTE.items())
    dark = ";".join(f"--{name}:{colour}" for name, colour in PALETTE.values())
    return (
        f":root{{{light};--page:#fff;--card:#f4f6f8}}"
        f"@media(prefers-color-scheme:dark){{:root{{{dark};--page:#12171d;--card:#1c242d}}}}"
    )


def standalone(picture: Markup) -> str:
    """Return a picture from `draw` as a file of its own, with colours for light and dark, and a background."""
    opening, rest = str(picture).split(">", 1)
    style = f'<style>{palette_css()}</style><rect width="100%" height="100%" style="fill: var(--page)"/>'
    return f'{opening} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'


def inlined(text: str, name: str, title: str, description: str) -> Markup:
    """Return Matplotlib's file as an element of a page: ids of its own, CSS variables for colours, and words.

    Args:
        text: the file.
        name: letters, digits and hyphens, unique on its page: the element's id, and what all its ids begin with.
        title: what the picture shows, in one line, for those who cannot see it.
        description: what there is to see in it, in sentences, for those who cannot see it.
    """
    root = ET.fromstring(text)  # noqa: S314 - Matplotlib wrote it a moment ago
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.partition("}")[2]
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            element.set(key.rpartition("}")[2], _attribute(key, value, name))
    size = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib |= {
        "id": name,
        "class": "chart",
        "viewBox": size,
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-description",
        "style": "stroke-linejoin: round; font-family: system-ui, sans-serif",
    }
    for position, (tag, words) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(tag, {"id": f"{name}-{'title' if tag == 'title' else 'description'}"})
        element.text = printable(words)
        root.insert(position, element)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - the serialiser escapes all text


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key.endswith("href"):
        return f"#{name}-{value.removeprefix('#')}"
    if key == "style":
        value = _FONT.sub("", value)
    value = value.replace("url(#", f"url(#{name}-")
    return _COLOUR.sub(lambda found: _VARIABLES[found[0]], value)
