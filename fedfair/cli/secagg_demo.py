"""The command `fedfair demo secagg`. Plays, prints, and writes one page; nothing else is left behind.

The story and its pictures are an example, `examples/secagg_demo`, which is installed with fedfair.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.padding import Padding

from fedfair.errors import StoppedError
from fedfair.identity.files import write_public
from fedfair.process.terminal import console

FORMAT = "fedfair/secagg-demo/1"


def secagg_command(
    output: Path = typer.Option(
        Path("fedfair-secagg-demo.html"), "--output", "-o", help="File for the page with the pictures."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the facts as JSON instead of the story."),
) -> None:
    """Demonstrate secure aggregation: five clinics, real bytes, a drop-out, and three lies of the aggregator."""
    # What plays and draws loads numpy and scikit-learn, which `--help` should not wait for.
    from fedfair.report.html import check_place
    from secagg_demo.page import demo_page
    from secagg_demo.story import play
    from secagg_demo.words import story_lines

    check_place(output)
    try:
        facts, vectors = play()
        write_public(output, demo_page(facts, vectors).encode("utf-8"))
    except KeyboardInterrupt:
        raise StoppedError("interrupted; nothing was written") from None
    if as_json:
        console.print_json(json.dumps({"format": FORMAT, "page": str(output), **asdict(facts)}))
        return
    for line in story_lines(facts):
        text = line.lstrip()
        console.print(Padding(text, (0, 0, 0, len(line) - len(text))))  # keeps the indent where a line is wrapped
    console.print("", f"The pictures: {output.resolve()}", sep="\n", soft_wrap=True)
