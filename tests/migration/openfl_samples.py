"""Workspaces with the keys and shapes of OpenFL's task runner, 1.5 to 1.9."""

from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, str]

INCLUDED: Files = {
    "plan/defaults/aggregator.yaml": """\
template: openfl.component.Aggregator
settings:
  db_store_rounds: 2
  persist_checkpoint: True
  persistent_db_path: local_state/tensor.db
""",
    "plan/defaults/collaborator.yaml": """\
template: openfl.component.Collaborator
settings:
  opt_treatment: 'CONTINUE_LOCAL'
  use_delta_updates: True
  db_store_rounds: 1
""",
    "plan/defaults/network.yaml": """\
template: openfl.federation.Network
settings:
  agg_addr: auto
  agg_port: auto
  hash_salt: auto
  use_tls: True
  client_reconnect_interval: 5
  require_client_auth: True
  cert_folder: cert
  enable_atomic_connections: False
  transport_protocol: grpc
""",
    "plan/defaults/assigner.yaml": """\
template: openfl.component.RandomGroupedAssigner
settings:
  task_groups:
    - name: learning
      percentage: 1.0
      tasks: [aggregated_model_validation, train]
    - name: evaluation
      percentage: 0
      tasks: [aggregated_model_validation]
""",
    "plan/defaults/tasks_torch.yaml": """\
aggregated_model_validation:
  function: validate_task
  kwargs: {apply: global, metrics: [acc]}
locally_tuned_model_validation:
  function: validate_task
  kwargs: {apply: local, metrics: [acc]}
train:
  function: train_task
  kwargs: {metrics: [loss], epochs: 1}
""",
}

PLAN = """\
aggregator:
  defaults: plan/defaults/aggregator.yaml
  settings:
    init_state_path: save/start.pbuf
    best_state_path: save/best.pbuf
    last_state_path: save/last.pbuf
    rounds_to_train: 4
    write_logs: false
    secure_aggregation: yes
collaborator:
  defaults: plan/defaults/collaborator.yaml
  settings: {opt_treatment: RESET, use_delta_updates: false, device_assignment_policy: CPU_ONLY}
data_loader:
  template: src.records.TableLoader
  settings: {collaborator_count: 2, data_group_name: hearts, batch_size: 16, limit: 500}
task_runner:
  template: src.runner.HeartRunner
  settings: {hidden: 6, device: cpu}
network:
  defaults: plan/defaults/network.yaml
  settings: {agg_addr: hub.example.org, agg_port: 50051}
tasks:
  defaults: plan/defaults/tasks_torch.yaml
  train:
    function: train_task
    aggregation_type: {template: openfl.interface.aggregation_functions.WeightedAverage}
    kwargs: {metrics: [loss], epochs: 2}
assigner:
  defaults: plan/defaults/assigner.yaml
compression_pipeline:
  template: openfl.pipelines.KCPipeline
  settings: {n_clusters: 6}
straggler_handling_policy:
  template: openfl.component.aggregator.straggler_handling.CutoffTimePolicy
  settings: {straggler_cutoff_time: 90, minimum_reporting: 1}
"""

RUNNER = 'open("RAN", "w").close()  # Nobody may run this file,.\n'

COLLABORATORS = "# Names.\ncollaborators:\n  - Clinic_A\n  - clinic-b\n"
DATA = "# name,path\nClinic_A,/srv/hearts/table.csv\nclinic-b,data/table.csv\n"

WHOLE: Files = {
    **INCLUDED,
    "plan/plan.yaml": PLAN,
    "plan/cols.yaml": COLLABORATORS,
    "plan/data.yaml": DATA,
    "src/runner.py": RUNNER,
}
"""A workspace of 1.9."""

OLD_PLAN = """\
aggregator:
  defaults: plan/defaults/aggregator.yaml
  template: openfl.component.Aggregator
  settings:
    rounds_to_train: 20
    log_metric_callback: {template: src.told.write_metric}
collaborator:
  defaults: plan/defaults/collaborator.yaml
  template: openfl.component.Collaborator
  settings: {epochs_per_round: 1.0, polling_interval: 4, delta_updates: false, opt_treatment: CONTINUE_GLOBAL}
data_loader:
  template: src.told.Shards
  settings: {collaborator_count: 3, data_group_name: pictures, batch_size: 4}
task_runner:
  template: src.pictures.PictureRunner
  settings: {kernels: 2}
network:
  template: openfl.federation.Network
  settings: {agg_addr: auto, agg_port: auto, tls: False, disable_client_auth: True, client_reconnect_interval: 5}
tasks:
  defaults: plan/defaults/tasks_torch.yaml
  aggregated_model_validation:
    function: validate
    kwargs: {apply: global, metrics: [dice_coef], batch_size: 8, smooth: 1}
  settings: {}
assigner:
  template: openfl.component.StaticGroupedAssigner
  settings:
    task_groups:
      - {name: some, percentage: 0.5, collaborators: [one], tasks: [train]}
compression_pipeline:
  template: openfl.pipelines.NoCompressionPipeline
straggler_handling_policy:
  template: openfl.component.straggler_handling_functions.PercentageBasedStragglerHandling
  settings: {percent_collaborators_needed: 0.5, minimum_reporting: 1}
something_new: {switch: 7}
"""

OLD: Files = {
    **INCLUDED,
    "plan/plan.yaml": OLD_PLAN,
    "plan/cols.yaml": "collaborators:\n",
    "plan/data.yaml": "one,1\ntwo,2\n",
}
"""A workspace of 1.5: shards instead of paths."""

SAMPLES = {"whole": WHOLE, "old": OLD}


def write_files(folder: Path, files: Files) -> Path:
    """Write a workspace and return its folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
