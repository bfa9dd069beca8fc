"""The reference of `plan.yaml` and `collaborator.yaml` as a page, written from the schema itself.

`python -m fedfair.report.plan_keys` prints the page that is kept in `docs/reference/plan.md`; a test fails when
they differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import cast

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedfair.consent import approvers
from fedfair.plan import (
    algorithms,
    initial,
    losses,
    parameters,
    privacy,
    sections,
    sources,
    statistics_section,
    task,
)
from fedfair.plan.meanings import meanings
from fedfair.policy import site_config, site_format, site_settings, site_sql, site_worker

INTRODUCTION = """# The plan and the site's own file, key by key

Written from the schema by `python -m fedfair.report.plan_keys`. A key that is not listed here is refused, and the
error suggests the nearest key. `required` keys have no default. A value that equals its default is no part of
the plan's digest. So a version with new keys voids no approval, and a default that was released never changes.

Every file (`plan.yaml`, `roster.yaml`, `collaborator.yaml`) has at most 64 KiB: some 8,000 names of collaborators.

A declared `task.partition` means that one data set is divided: a deployed site then takes its own part of whatever
it reads. Omit it where every site reads only its own records.

Editors with the YAML language server complete and explain the keys of a plan by its JSON Schema. Write it beside
the plan by `fedfair plan schema > plan.schema.json`, and let the plan begin with this line:

```yaml
# yaml-language-server: $schema=plan.schema.json
```
"""

PLAN_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("plan.yaml: federation", sections.FederationSection),
    ("federation.aggregator", sections.AggregatorAddress),
    ("plan.yaml: task", task.TaskSection),
    *(
        (f"task.data: {{{key}: ...}}", cast("type[BaseModel]", field.annotation))
        for kind in sources.SOURCES.values()
        for key, field in kind.model_fields.items()
    ),
    ("task.partition", sources.Partition),
    ("task.model: {name: linear}", task.LinearModel),
    ("task.model: {name: mlp}", task.MlpModel),
    ("task.model: {name: resnet18}", task.ResnetModel),
    ("task.loss: {name: multi_label}", losses.MultiLabelLoss),
    ("task.loss: {name: squared}", losses.SquaredLoss),
    ("task.loss: {name: huber}", losses.HuberLoss),
    ("task.loss: {name: pinball}", losses.PinballLoss),
    ("task.loss: {name: survival}", losses.SurvivalLoss),
    ('task.loss: {name: "module:function"}', losses.OwnLoss),
    ("plan.yaml: objective", sections.ObjectiveSection),
    ("objective.smoothing", sections.SmoothingSection),
    ("objective.reference", sections.ReferenceSection),
    ("plan.yaml: training", sections.TrainingSection),
    ("training.server_optimizer", sections.ServerOptimizerSection),
    ("training.initial", initial.InitialSection),
    ("training.initial.continues", initial.ContinuedSection),
    ("training.parameters", parameters.ParametersSection),
    ("training.parameters.lora", parameters.LoraSection),
    ("training.options", algorithms.OptionsSection),
    ("plan.yaml: secure_aggregation", sections.SecureAggregationSection),
    ("plan.yaml: privacy", privacy.PrivacySection),
    ("privacy.sample_level", privacy.SampleLevelSection),
    ("privacy.collaborator_level", privacy.CollaboratorLevelSection),
    ("plan.yaml: evaluation", sections.EvaluationSection),
    ("evaluation.sets", sections.SetsSection),
    ("evaluation.slices", sections.SlicesSection),
    ("evaluation.release_audit", sections.ReleaseAuditSection),
    ("plan.yaml: statistics", statistics_section.StatisticsSection),
    ("statistics.columns", statistics_section.ColumnSection),
)

SITE_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("collaborator.yaml", site_config.SiteConfig),
    ("collaborator.yaml: data", site_config.SiteData),
    ("collaborator.yaml: data.format", site_format.FormatSection),
    ("collaborator.yaml: data.sql", site_sql.SqlSection),
    ("collaborator.yaml: worker", site_worker.WorkerSection),
    ("collaborator.yaml: network", site_config.NetworkSection),
    ("collaborator.yaml: policy", site_config.SitePolicy),
    ("policy.all_plans", site_config.AllPlansSection),
    ("policy.withdrawals", site_config.WithdrawalsSection),
    ("policy.release", site_config.ReleaseSection),
    ("collaborator.yaml: budget", site_config.BudgetSection),
    ("site.yaml", site_settings.SiteSettings),
    ("site.yaml: hours", site_settings.HoursSection),
    ("site.yaml: disk", site_settings.DiskSection),
    ("approvers.yaml", approvers.ApproversSection),
    ("approvers.yaml: people", approvers.PersonSection),
)

SECTIONS = (*PLAN_SECTIONS, *SITE_SECTIONS)


def page() -> str:
    """Return the whole reference in Markdown."""
    return "\n".join([INTRODUCTION, *(line for title, section in SECTIONS for line in _section(title, section))])


def _section(title: str, section: type[BaseModel]) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"{(section.__doc__ or '').splitlines()[0]}\n"
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    told = meanings(section)
    for name, field in section.model_fields.items():
        yield f"| `{name}` | {_default(field)} | {told.get(name, '').replace('|', chr(92) + '|')} |"
    yield ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    words = {None: "null", True: "true", False: "false"}
    # 1 == True, so a number must not be looked up.
    return f"`{words.get(value, value) if value is None or isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.stdout.write(page())
