"""The published tables as a page of YAML to copy into a plan, written from `fedfair.plan.dataset_presets` itself.

`python -m fedfair.report.presets_page` prints the page that is kept in `docs/how-to/published-tables.md`; a test
fails when they differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import yaml

from fedfair.plan.dataset_presets import ACS_INCOME, ADULT, HEART, Table

INTRODUCTION = """# Published tables, to copy into a plan

Written by `python -m fedfair.report.presets_page`. Each block is the `task.data` of a plan for files as their
authors publish them. A simulation adds the paths (`train`, `test`, or `train_of` for a file of each site). A
deployed site names its own file in `collaborator.yaml`. [plan.md](../reference/plan.md) explains every key.
"""

PAGES: tuple[tuple[str, Table], ...] = (
    ("UCI Heart Disease: processed.{cleveland,hungarian,switzerland,va}.data", HEART),
    ("UCI Adult: adult.data and adult.test", ADULT),
    ("ACS Income 2018 in the table of FeDa4Fair, one collaborator for each state", ACS_INCOME),
)


def page() -> str:
    """Return the whole page in Markdown."""
    return "\n".join([INTRODUCTION, *(line for title, table in PAGES for line in _section(title, table))])


def _section(title: str, table: Table) -> Iterator[str]:
    data = {"task": {"data": {"csv": dict(table)}}}
    yield f"## {title}\n"
    yield f"```yaml\n{yaml.safe_dump(data, sort_keys=False, width=100, default_flow_style=None)}```\n"


if __name__ == "__main__":
    sys.stdout.write(page())
