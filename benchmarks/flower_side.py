"""One round of Flower's SecAgg+ in one process, through its own client and server functions, with times.

Started by `secagg_vs_flower.py` with the Python of an environment that holds Flower. The server is
`SecAggPlusWorkflow`, called as a run calls it; every client is `secaggplus_mod`; between them stands a grid that
hands messages over in memory. Nothing of Flower is changed or replaced. Prints one JSON object.
Usage: python flower_side.py '{"members": 10, "threshold": 7, "length": 100000, "dropped": 0, "clip": 1.0}'
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import TypeVar

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.serde import recorddict_to_proto
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext
from flwr.server.client_manager import SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.supercore.task_identity import TaskIdentity

RUN, SERVER_NODE = 1, 10_000
STAGES = ("setup", "share_keys", "collect_masked_vectors", "unmask")


Result = TypeVar("Result")


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return what `work` returns and the processor milliseconds of all threads."""
    begun = time.process_time()
    result = work()
    return result, 1e3 * (time.process_time() - begun)


class Grid:
    """Hands messages to clients and measures: a client's time and bytes by stage, and the server's time."""

    def __init__(self, updates: dict[int, np.ndarray], weights: dict[int, int], gone: set[int]) -> None:
        self.updates, self.weights, self.gone = updates, weights, gone
        self.contexts = {node: Context(RUN, node, {}, RecordDict(), {}) for node in updates}
        self.client: dict[str, list[float]] = defaultdict(list)
        self.server: dict[str, float] = {}
        self.sent: dict[str, list[int]] = defaultdict(list)
        self.stage = -1
        self.resumed = time.process_time()

    def close_stage(self) -> None:
        """Count the server's work since the last replies to the stage that they belong to."""
        name = STAGES[self.stage] if self.stage >= 0 else "before"
        spent = 1e3 * (time.process_time() - self.resumed)
        self.server[name] = self.server.get(name, 0.0) + spent

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Let every client answer; the lost ones do not from the masked vectors on."""
        del timeout
        self.close_stage()
        self.stage += 1
        replies = [
            self.ask(message)
            for message in messages
            if self.stage < STAGES.index("collect_masked_vectors") or message.metadata.dst_node_id not in self.gone
        ]
        self.resumed = time.process_time()
        return replies

    def ask(self, message: Message) -> Message:
        """Let one client answer, without the time of its training."""
        node, name = message.metadata.dst_node_id, STAGES[self.stage]
        trained = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([self.updates[node]]), self.weights[node], {})
        content = compat.fitres_to_recorddict(trained, keep_input=True)
        before = self.contexts[node]

        def train(given: Message, _context: Context) -> Message:
            return Message(content, reply_to=given)

        own = Message(
            RecordDict({key: _copied(record) for key, record in message.content.items()}),
            dst_node_id=node,
            message_type=message.metadata.message_type,
            group_id=message.metadata.group_id,
        )
        reply, spent = timed(lambda: secaggplus_mod(own, before, train))
        self.client[name].append(spent)
        self.sent[name].append(recorddict_to_proto(reply.content).ByteSize())
        return reply


def _copied(record: object) -> object:
    # In a run every client gets bytes of its own; the module takes entries out of the record that it is given.
    return ConfigRecord(dict(record), keep_input=True) if isinstance(record, ConfigRecord) else record


def one_round(
    size: dict[str, float], weights: dict[int, int], updates: dict[int, np.ndarray]
) -> dict[str, object]:
    """Run the workflow once and return the measurements and the error of its mean."""
    members, gone = int(size["members"]), set(list(updates)[int(size["members"] - size["dropped"]) :])
    grid, manager = Grid(updates, weights, gone), SimpleClientManager()
    for node in updates:
        manager.register(GridClientProxy(node, grid, RUN))
    strategy = FedAvg(min_fit_clients=members, min_available_clients=members)
    context = LegacyContext(
        Context(RUN, SERVER_NODE, {}, RecordDict(), {}), strategy=strategy, client_manager=manager
    )
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    start = ndarrays_to_parameters([np.zeros(int(size["length"]), np.float32)])
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(start, keep_input=False)
    workflow = SecAggPlusWorkflow(
        1.0, int(size["threshold"]), max_weight=float(max(weights.values())), clipping_range=size["clip"]
    )
    grid.resumed = time.process_time()
    workflow(grid, context)
    grid.close_stage()
    record = context.state.array_records[MAIN_PARAMS_RECORD]
    (mean,) = parameters_to_ndarrays(compat.arrayrecord_to_parameters(record, keep_input=True))
    stayed = [node for node in updates if node not in gone]
    plain = sum(weights[node] * updates[node].astype(np.float64) for node in stayed)
    client = {name: statistics.median(grid.client[name]) for name in STAGES}
    return {
        "client_ms": {**client, "whole_round": sum(client.values())},
        "server_ms": {**grid.server, "whole_round": sum(grid.server.values())},
        "client_bytes_sent": {name: int(statistics.median(grid.sent[name])) for name in STAGES},
        "greatest_error_of_the_mean": float(np.abs(mean - plain / sum(weights[n] for n in stayed)).max()),
    }


def main() -> None:
    """Measure what the argument asks for."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, SERVER_NODE, 1
    size = json.loads(sys.argv[1])
    generator = np.random.Generator(np.random.PCG64(size["seed"]))
    nodes = range(1, size["members"] + 1)
    weights = {node: 100 + node for node in nodes}
    updates = {node: generator.uniform(-0.9, 0.9, size["length"]).astype(np.float32) for node in nodes}
    secret = os.urandom(32)
    splitting = [
        timed(lambda: create_shares(secret, size["threshold"], size["members"]))[1] for _ in range(size["repeat"])
    ]
    print(
        json.dumps(
            {
                "version": version("flwr"),
                "split_one_secret_ms": statistics.median(splitting),
                **one_round(size, weights, updates),
            }
        )
    )


if __name__ == "__main__":
    main()
