"""The files of a new workspace, as text with comments for the person who edits them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.ids import parse_participant_id
from fedfair.plan.yaml_reader import resolve

_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}")

GITIGNORE = """\
# Keys, certificates and data never go into version control.
cert/
data/
save/
logs/
egress/
received/
runs/
approvals/*.safetensors
state/
*.key
*.pem
*.request.json
*.zip
collaborator.yaml
"""

COLLABORATOR = """\
# This site's own file: nobody else sees it, and no plan or aggregator can change its terms.
collaborator: {name}          # this site's name in the plan
# Paths start from this file's folder. Which of them is needed depends on the plan's data.
data: {{train: {train}, test: {test}, root: {root}}}
device: null                 # auto | cpu | cuda | mps; null takes the plan's
threads: null                # null for all cores
network: {{proxy: environment}}   # or none, or http://user:password@host:port: docs/how-to/network.md
budget: null                 # what all plans together may cost, such as {{epsilon: 8.0}}: docs/explain/privacy.md
policy:
  allow_plain_sums: false    # true lets the aggregator see this site's own updates in the clear
  allow_module_code: false   # true lets the plan run any Python code (module:function) here; rather name it:
  module_code: []            # digests of the code that may run here, as `fedfair plan check` prints them
  initial_weights: [seed, own-run]   # weights that a run may begin with; any others are named by their digest
  publish_site_means: false  # true lets the plan publish this site's records, mean loss and accuracy by split
  mode: malicious            # weakest protection of a masked sum: malicious | semi-honest
  colluders: 0               # fewest colluding collaborators that a masked sum must withstand
  max_rounds: null           # most training rounds under one plan, over all its runs; null for any number
  max_epsilon: null          # most epsilon that one plan may cost this site; null for any
  max_runs: null             # most runs of one plan; null takes 3 where sums are masked or noised
  # What may be known: docs/reference/site-policy.md
  reveals: [update-sums, loss-sums, feature-sums, score-sums]
  max_bins: 256              # most bins of an evaluation's histogram of losses: finer ones tell more of a record
  max_bins_per_record: 8     # most of them for each record of this site
  min_collaborators: null    # fewest collaborators in every sum; null for all of the plan's sites
  min_records: 20            # with fewer records that count under a plan, this site adds zeros to every sum
  rows: features             # a plan may choose rows by features only; any lets it name an id
  purposes: [training, evaluation, standardisation]
"""

_BREAST_CANCER = """\
  data: breast-cancer              # 569 records that come with scikit-learn, to rehearse with
  partition: {scheme: random}      # each site reads the same records and takes its own share of them
  test_fraction: 0.2               # held out of training: the result and the certificate speak about these people
  validation_fraction: 0.2         # held out too: the run returns the model that does best on them
"""

_CSV = """\
  # Every site has a file with these columns and names it in its own collaborator.yaml. `train` and `collaborator`
  # serve a simulation only: one file with everybody's rows, and the column that says whose row it is.
  data:
    csv:
      label: outcome               # the column to predict; 0 and 1, or state label_values: [no, yes]
      numeric: [age, pressure]
      categorical: {sex: [F, M]}   # every value that counts; others share one more column
      missing: refuse              # refuse | mean | zero
      train: data/all.csv
      collaborator: site
  test_fraction: 0.2               # held out of training: the result and the certificate speak about these people
  validation_fraction: 0.2         # held out too: the run returns the model that does best on them
"""

TEMPLATES = {"breast-cancer": _BREAST_CANCER, "csv": _CSV}

# A linear model separates the classes of the rehearsal's records. After 100 rounds it only becomes too sure.
_ROUNDS = {"breast-cancer": 100, "csv": 300}

_PLAN = """\
# What the consortium agrees on. Check it with `fedfair plan check`; `fedfair plan show` prints every default.
federation:
  name: {federation}
  aggregator:
    host: {host}                # the name under which collaborators reach the aggregator
    port: 8443
  collaborators: [{collaborators}]
  # How many must contribute to every sum; null for all. With fewer, a run goes on where a site is down. That needs
  # each site's consent (policy.min_collaborators): two rounds, with and without a site, show that site's update.
  min_collaborators: {count}
task:
{task}  standardize: secure              # means and variances of numeric columns, from one sum before round 1
  model: {{name: linear}}            # or {{name: mlp, hidden: [64]}}, {{name: resnet18}}, module:function
objective:
  name: rcvar
  # Protect every group of at least this share of the people. A small share is not free: below the critical size of
  # your data the best model for the worst group is a guess. `fedfair plan advise` finds that size, and the price.
  worst_group_size: 0.3
  tradeoff: 0.3                    # weight of the mean of everybody: 0 is the worst group alone, 1 the mean alone
training:
  algorithm: fedsrcvar             # or fedavg
  rounds: {rounds}
  local_steps: 1
  batch_size: 256                  # or full; how steps are made needs no tuning (docs/explain/defaults.md)
  threshold_init: quantile         # bound | quantile | a number
secure_aggregation:
  mode: malicious                  # or semi-honest; "off" is plain sums, which every site must allow
  colluders: 0                     # how many collaborators may side with the aggregator without learning more
  # most_records: 65536            # of one collaborator; masked updates are the finer, the smaller it is
evaluation:
  every: 10
  group_sizes: [0.05, 0.1, 0.2, 0.3, 0.5]
  # Histograms of scores, for AUC and for two numbers that make scores probabilities. They carry no noise: say
  # false with a privacy section, and for answers that are no classes.
  scores: true
"""


@dataclass(frozen=True, slots=True)
class Members:
    """Who takes part.

    Attributes:
        host: the name under which sites reach the aggregator.
        collaborators: the names of the sites.
    """

    host: str
    collaborators: tuple[str, ...]


TWO_CLINICS = Members("localhost", ("clinic-a", "clinic-b"))


def check_members(members: Members) -> None:
    """Refuse a host or names that no plan can have.

    Raises:
        PlanError: the host cannot be one, or a name stands twice.
        FedfairError: a name is not 1 to 40 of a-z, 0-9 and inner hyphens, or is reserved.
    """
    for name in members.collaborators:
        parse_participant_id(name)
        if members.collaborators.count(name) > 1:
            raise PlanError(f"{name} is named twice", "name every site once")
    if not _HOST.fullmatch(members.host):
        raise PlanError(f"{members.host!r} is no host name or address", "name it without a port: agg.example.org")


def plan_text(federation: str, template: str, members: Members = TWO_CLINICS, task: str | None = None) -> str:
    """Return a commented plan.

    Args:
        federation: a valid federation name.
        template: a key of `TEMPLATES`.
        members: the aggregator's host and the sites; valid.
        task: the lines of `task.data` and the splits, in place of the template's.
    """
    host = f'"{members.host}"' if ":" in members.host else members.host
    return _PLAN.format(
        federation=federation,
        task=TEMPLATES[template] if task is None else task,
        rounds=_ROUNDS[template],
        host=host.ljust(len("localhost")),
        collaborators=", ".join(map(_quoted, members.collaborators)),
        count=len(members.collaborators),
    )


def collaborator_text(name: str, records: Path | None = None) -> str:
    """Return a commented `collaborator.yaml` with the most careful terms.

    Args:
        name: the site's.
        records: the file or the folder of its records; None where somebody fills it in.
    """
    places = {"train": "null", "test": "null", "root": "null"}
    if records is not None:
        # A text of JSON is one of YAML, whatever characters a path has.
        places["root" if records.is_dir() else "train"] = json.dumps(str(records.resolve()), ensure_ascii=False)
    return COLLABORATOR.format(name=_quoted(name), **places)


def _quoted(name: str) -> str:
    """Return a name as YAML reads it back: one such as 1 or null is valid, and would be something else."""
    return name if resolve(name) == name else f'"{name}"'
