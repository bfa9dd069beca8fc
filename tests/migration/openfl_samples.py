"""Workspaces with the keys and shapes of OpenFL's task runner, 1.5 to 1.9, and small models of our own."""

from __future__ import annotations

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

RUNNER = '''\
"""A runner whose layers are its own."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from openfl.federated import PyTorchTaskRunner
from openfl.utilities import Metric

from src.parts import Squeeze as Narrow

open("RAN", "w").close()  # Nobody may run this file.
WIDTH = 3


class HeartRunner(PyTorchTaskRunner):
    def __init__(self, hidden, device="cpu", **kwargs):
        super().__init__(device=device, **kwargs)
        torch.manual_seed(0)
        columns = self.data_loader.get_feature_shape()[0]
        # The first layer reads every column.
        self.first = nn.Linear(columns, hidden)
        self.narrow = Narrow(hidden, WIDTH)
        self.last = nn.Linear(WIDTH, self.data_loader.get_num_classes())
        self.to(device)
        # Plain steps do here.
        self.optimizer = optim.SGD(self.parameters(), lr=0.05)
        self.loss_fn = F.cross_entropy
        if hidden > 3:
            print("made")

    def forward(self, x):
        return self.last(self.narrow(F.relu(self.first(x))))

    def train_(self, train_dataloader) -> Metric:
        return Metric(name="loss", value=0)

    def validate_(self, validation_dataloader) -> Metric:
        return Metric(name="acc", value=1)
'''

PARTS = '''\
from torch import nn


class Squeeze(nn.Module):
    """Fewer columns than before."""

    def __init__(self, before, after):
        super().__init__()
        self.layer = nn.Linear(before, after)

    def forward(self, x):
        return self.layer(x)


class Unused(nn.Module):
    pass
'''

LOADER = """\
import numpy as np
from openfl.federated import PyTorchDataLoader


def read(path, limit):
    table = np.loadtxt(path, delimiter=",", skiprows=1)[:limit]
    return table[:, :-1], table[:, -1].astype(int)


class TableLoader(PyTorchDataLoader):
    def __init__(self, data_path=None, batch_size=32, limit=100, **kwargs):
        super().__init__(batch_size, **kwargs)
        self.feature_shape = [4]
        self.num_classes = 2
        if data_path is None:
            return
        features, labels = read(data_path, limit)
        cut = len(labels) * 4 // 5
        self.X_train, self.y_train = features[:cut], labels[:cut]
        self.X_valid, self.y_valid = features[cut:], labels[cut:]
        self.train_loader = self.get_train_loader()

    def get_feature_shape(self):
        return self.feature_shape
"""

COLLABORATORS = "# Names.\ncollaborators:\n  - Clinic_A\n  - clinic-b\n"
DATA = "# name,path\nClinic_A,/srv/hearts/table.csv\nclinic-b,data/table.csv\n"

WHOLE: Files = {
    **INCLUDED,
    "plan/plan.yaml": PLAN,
    "plan/cols.yaml": COLLABORATORS,
    "plan/data.yaml": DATA,
    "src/__init__.py": "",
    "src/runner.py": RUNNER,
    "src/parts.py": PARTS,
    "src/records.py": LOADER,
}
"""A workspace of 1.9 of which model and loader can be carried over."""

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

OLD_RUNNER = '''\
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from openfl.federated import PyTorchTaskRunner
from .told import half_loss


class PictureRunner(PyTorchTaskRunner):
    """Reads pictures."""

    def __init__(self, device='cpu', **kwargs):
        """Begin."""
        super().__init__(device=device, **kwargs)
        self.num_classes = self.data_loader.get_num_classes()
        self.init_network(device=self.device, **kwargs)
        self._init_optimizer(lr=kwargs.get('lr'))
        self.loss_fn = half_loss
        self.initialize_tensorkeys_for_functions()

    def _init_optimizer(self, lr):
        self.optimizer = optim.Adam(self.parameters(), lr=float(lr or 1e-3))

    def init_network(self, device, kernels, print_model=True, **kwargs):
        channels = self.feature_shape[0]
        self.layer = nn.Conv2d(channels, kernels, 3)
        self.norm = nn.BatchNorm2d(kernels)
        self.end = nn.LazyLinear(self.num_classes)
        if print_model:
            print(self)
        self.to(device)

    def forward(self, x):
        x = F.dropout(self.norm(self.layer(x)).flatten(1), p=0.5)
        return torch.softmax(self.end(x), dim=1)

    def validate(self, col_name, round_num, input_tensor_dict, **kwargs):
        return {}, {}

    def reset_opt_vars(self):
        self._init_optimizer(lr=1)
'''

TOLD = """\
from openfl.federated import PyTorchDataLoader


def half_loss(output, target):
    return (output - target).abs().sum() / 2


def write_metric(*words):
    raise RuntimeError("never called")


class Shards(PyTorchDataLoader):
    def __init__(self, data_path, batch_size, **kwargs):
        super().__init__(batch_size, **kwargs)
        self.X_train, self.y_train, self.X_valid, self.y_valid = shard(int(data_path))
"""

OLD: Files = {
    **INCLUDED,
    "plan/plan.yaml": OLD_PLAN,
    "plan/cols.yaml": "collaborators:\n",
    "plan/data.yaml": "one,1\ntwo,2\n",
    "src/pictures.py": OLD_RUNNER,
    "src/told.py": TOLD,
}
"""A workspace of 1.5: shards instead of paths, an optimiser and a network in methods of their own."""

WRAPPED_RUNNER = """\
from openfl.federated import PyTorchTaskRunner
from src.network import make_network


class Wrapped(PyTorchTaskRunner):
    def __init__(self, device="cpu", **kwargs):
        super().__init__(device=device, **kwargs)
        self.model = make_network()
        self.model.to(device)
"""

NETWORK = """\
from torch import nn

SIZES = [(4, 3), (3, 2)]


def make_network():
    return nn.Sequential(*(nn.Linear(before, after) for before, after in SIZES))
"""

WRAPPED: Files = {
    **WHOLE,
    "plan/plan.yaml": PLAN.replace("src.runner.HeartRunner", "src.wrapped.Wrapped").replace("hidden: 6, ", ""),
    "src/wrapped.py": WRAPPED_RUNNER,
    "src/network.py": NETWORK,
}
"""A runner that holds its model, and has no forward pass of its own."""

SAMPLES = {"whole": WHOLE, "old": OLD, "wrapped": WRAPPED}


def write_files(folder: Path, files: Files) -> Path:
    """Write a workspace and return its folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
