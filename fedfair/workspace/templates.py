"""The files of a new workspace, as text with comments for the person who edits them."""

from __future__ import annotations

from fedfair.plan.yaml_reader import resolve

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
data: {{train: null, test: null, root: null}}
device: null                 # auto | cpu | cuda | mps; null takes the plan's
threads: null                # null for all cores
network: {{proxy: environment}}   # or none, or http://user:password@host:port: docs/how-to/network.md
budget: null                 # what all plans together may cost, such as {{epsilon: 8.0}}: docs/explain/privacy.md
policy:
  allow_plain_sums: false    # true lets the aggregator see this site's own updates in the clear
  allow_module_code: false   # true lets the plan run any Python code (module:function) here; rather name it:
  module_code: []            # digests of the code that may run here, as `fedfair plan check` prints them
  publish_site_means: false  # true lets the plan publish this site's records, mean loss and accuracy by split
  mode: malicious            # weakest protection of a masked sum: malicious | semi-honest
  colluders: 0               # fewest colluding collaborators that a masked sum must withstand
  max_rounds: null           # most training rounds under one plan, over all its runs; null for any number
  max_epsilon: null          # most epsilon that one plan may cost this site; null for any
  max_runs: null             # most runs of one plan; null takes 3 where sums are masked or noised
  # What may be known: docs/reference/site-policy.md
  reveals: [update-sums, loss-sums, loss-quantiles, feature-sums]
  min_collaborators: null    # fewest collaborators in every sum; null for any number
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
    host: localhost                # the name under which collaborators reach the aggregator
    port: 8443
  collaborators: [clinic-a, clinic-b]
  min_collaborators: 2             # how many must contribute to every sum; null for all
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
"""


def plan_text(federation: str, template: str) -> str:
    """Return a commented plan.

    Args:
        federation: a valid federation name.
        template: a key of `TEMPLATES`.
    """
    return _PLAN.format(federation=federation, task=TEMPLATES[template], rounds=_ROUNDS[template])


def collaborator_text(name: str) -> str:
    """Return a commented `collaborator.yaml` with the most careful terms."""
    # A name such as 1 or null is a valid one, and YAML would read something else.
    return COLLABORATOR.format(name=name if resolve(name) == name else f'"{name}"')
