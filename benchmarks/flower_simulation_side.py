"""Rounds of Flower's simulation engine: FedAvg of an MLP, every client in every round, no evaluation.

Started by `simulation.py` with the Python of an environment that holds Flower. Server and clients are written as
Flower's documentation writes them; a client keeps its records and its model in memory between rounds, as ours do.
Prints the seconds of each round as one JSON list.
Usage: python flower_simulation_side.py '{"collaborators": 51, "local_steps": 1, ...}'
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time
from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

LEARNING_RATE = 0.01


def model_of(size: dict[str, int]) -> torch.nn.Module:
    """Return the model before round 1."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(size["columns"], size["hidden"]),
        torch.nn.ReLU(),
        torch.nn.Linear(size["hidden"], size["classes"]),
    )


@cache
def records_of(partition: int, records: int, columns: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the records of one client."""
    source = torch.Generator().manual_seed(partition)
    features = torch.randn(records, columns, generator=source)
    return features, torch.randint(classes, (records,), generator=source)


def client_app(size: dict[str, int]) -> ClientApp:
    """Return the client: a few steps of gradient descent on batches of its own."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        partition = int(context.node_config["partition-id"])
        features, labels = records_of(partition, size["records"], size["columns"], size["classes"])
        model = model_of(size)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        descent = torch.optim.SGD(model.parameters(), LEARNING_RATE)
        for _ in range(size["local_steps"]):
            batch = torch.randperm(size["records"])[: size["batch"]]
            descent.zero_grad()
            torch.nn.functional.cross_entropy(model(features[batch]), labels[batch]).backward()
            descent.step()
        answer = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": size["records"]}),
        }
        return Message(RecordDict(answer), reply_to=message)

    return app


class Timed(FedAvg):
    """FedAvg that notes when each round's mean is there."""

    def __init__(self, clients: int) -> None:
        super().__init__(
            fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        self.ends: list[float] = []

    def aggregate_train(self, server_round: int, replies: object) -> object:
        """Average as FedAvg does, and look at the clock."""
        mean = super().aggregate_train(server_round, replies)
        self.ends.append(time.perf_counter())
        return mean


def main() -> None:
    """Run the rounds and print how long each took."""
    size = json.loads(sys.argv[1])
    logging.disable(logging.WARNING)
    server, strategy = ServerApp(), Timed(size["collaborators"])
    began: list[float] = []

    @server.main()
    def run(grid: Grid, _context: Context) -> None:
        began.append(time.perf_counter())
        strategy.start(grid, ArrayRecord(model_of(size).state_dict()), num_rounds=size["rounds"])

    run_simulation(
        server,
        client_app(size),
        size["collaborators"],
        backend_config={
            "init_args": {"num_cpus": os.cpu_count(), "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    ends = began + strategy.ends
    print(json.dumps([end - start for start, end in itertools.pairwise(ends)]))


if __name__ == "__main__":
    main()
