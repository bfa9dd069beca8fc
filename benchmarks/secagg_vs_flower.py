"""One round of secure aggregation, fedfair's beside Flower's SecAgg+, at the same sizes and in the same run.

Flower gets an environment of its own, because its pins differ from ours: made in a temporary folder, or kept
with --environment. Both sides run one round in one process with their own client and server functions, messages
handed over in memory, training left out; times are processor milliseconds of all threads, medians over the
clients. The same updates, weights, clip and threshold go into both.

What is compared is the whole work, not its twin parts, because they are cut differently: our upload holds
masking, splitting and sealing of all shares and a signature, and what Flower does in three stages; our keys are
agreed once for up to 100 rounds, Flower's in every round. Ours resists an aggregator that lies (threshold, votes,
signatures, commitments), SecAgg+ one that follows the protocol.
Usage: python benchmarks/secagg_vs_flower.py [--environment FOLDER] [--quick]
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from machine import report

from fedfair.secagg.effects import Contribute, Send, SendTo, ServerEffect, SumOpened
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.shamir import split
from fedfair.secagg.shape import SumShape
from secagg_demo.consortium import PURPOSE, Consortium

FLOWER = "flwr==1.41.0"
REPEAT, SEED, CLIP = 15, 1, 1.0
MODEL_DIGEST = bytes(32)
SIZES = ((10, 3, 100_000, 0), (10, 3, 100_000, 3), (10, 3, 1_000_000, 0), (50, 16, 100_000, 0))
QUICK = ((10, 3, 1_000, 0), (10, 3, 1_000, 3))
"""(members, colluders, length of the body, members that vanish before their upload arrives)."""

OF_THE_SET_UP = {Kind.PROPOSAL: "set_up", Kind.KEY_ADVERTISEMENTS: "set_up", Kind.CONFIRMS: "set_up"}
STEPS = OF_THE_SET_UP | {
    Kind.ROUND_START: "enter_and_upload", Kind.SURVIVORS: "vote", Kind.UNMASK_REQUEST: "answer",
    Kind.PAIR_MASKS_REQUEST: "masks_with_the_missing", Kind.PAIR_MASKS: "masks_with_the_missing",
    Kind.KEY_ADVERTISEMENT: "set_up", Kind.CONFIRM: "set_up", Kind.UPLOAD: "add_uploads",
    Kind.CONSISTENCY_CHECK: "votes", Kind.UNMASK_SHARES: "unmask",
}  # fmt: skip
"""Which step the work on a message belongs to, at the site or at the aggregator."""

Result = TypeVar("Result")


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return what `work` returns and the processor milliseconds of all threads."""
    begun = time.process_time()
    result = work()
    return result, 1e3 * (time.process_time() - begun)


class Measured:
    """Carries messages between the sites and the server of a consortium and adds up who worked how long."""

    def __init__(self, consortium: Consortium, updates: dict[int, Update], gone: set[int]) -> None:
        self.consortium, self.updates, self.gone = consortium, updates, gone
        self.site: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.server: dict[str, float] = defaultdict(float)
        self.sent: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.mean: np.ndarray | None = None

    def begin(self, step: str, work: Callable[[], list[ServerEffect]]) -> None:
        """Let the server begin something and carry everything that follows."""
        effects, spent = timed(work)
        self.server[step] += spent
        pending = deque(effects)
        while pending:
            effect = pending.popleft()
            if isinstance(effect, SumOpened):
                opened = self.consortium.server.take_sum()
                self.mean = opened.body / opened.weight
            if not isinstance(effect, SendTo):
                continue
            kind = kind_of(effect.message)
            if effect.member in self.gone and STEPS[kind] != "set_up":
                pending.extend(self.consortium.server.gone(effect.member))
                continue
            for send in self.hand_over(effect.member, effect.message, STEPS[kind]):
                pending.extend(self.receive(effect.member, send))

    def hand_over(self, member: int, message: bytes, step: str) -> list[Send]:
        """Hand a message to a site; return what it sends."""
        site, sends = self.consortium.sites[member], []

        def work() -> None:
            effects = deque(site.receive(message, self.consortium.subject(MODEL_DIGEST)))
            while effects:
                effect = effects.popleft()
                if isinstance(effect, Contribute):
                    effects.extend(site.contribute(self.updates[member], secrets.token_bytes(32)))
                elif isinstance(effect, Send):
                    sends.append(effect)

        self.site[step][member] += timed(work)[1]
        self.sent[step][member] += sum(len(send.message) + len(send.vector) for send in sends)
        return sends

    def receive(self, member: int, send: Send) -> list[ServerEffect]:
        """Hand what a site sent to the server."""
        server = self.consortium.server
        effects, spent = timed(lambda: server.receive(member, send.message, send.vector))
        self.server[STEPS[kind_of(send.message)]] += spent
        return effects


def ours(members: int, colluders: int, length: int, dropped: int) -> dict[str, object]:
    """Run a set-up and one round; return the measurements and the error of the mean."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    weights = {index: 100 + index for index in range(1, members + 1)}
    bodies = {index: generator.uniform(-0.9, 0.9, length).astype(np.float32) for index in weights}
    names = [f"clinic-{index}" for index in weights]
    consortium = Consortium(names, colluders, SumShape((), (length,)), max(weights.values()))
    updates = {index: Update(np.zeros(0), bodies[index], weights[index]) for index in weights}
    measured = Measured(consortium, updates, set(list(weights)[members - dropped :]))
    measured.begin("set_up", lambda: consortium.server.open_session(weights))
    subject = consortium.subject(MODEL_DIGEST)
    measured.begin("start", lambda: consortium.server.start_round(PURPOSE, subject, (CLIP,), weights))
    if measured.mean is None:
        raise SystemExit("the round did not end in a sum")
    stayed = [index for index in weights if index not in measured.gone]
    plain = sum(weights[index] * bodies[index].astype(np.float64) for index in stayed)
    client = {step: statistics.median(spent.values()) for step, spent in measured.site.items()}
    server = dict(measured.server)
    return {
        "threshold": consortium.terms.threshold,
        "split_one_secret_ms": splitting(members, consortium.terms.threshold),
        "client_ms": {**client, "whole_round": sum(client.values()) - client["set_up"]},
        "server_ms": {**server, "whole_round": sum(server.values()) - server["set_up"]},
        "client_bytes_sent": {step: int(statistics.median(sent.values())) for step, sent in measured.sent.items()},
        "greatest_error_of_the_mean": float(
            np.abs(measured.mean - plain / sum(weights[index] for index in stayed)).max()
        ),
    }


def splitting(members: int, threshold: int) -> float:
    """Return the median processor milliseconds of splitting one secret."""
    secret, points = secrets.token_bytes(31), range(1, members + 1)
    work = (timed(lambda: split(secret, points, threshold, secrets.token_bytes))[1] for _ in range(REPEAT))
    return statistics.median(work)


def theirs(python: Path, members: int, threshold: int, length: int, dropped: int) -> dict[str, object]:
    """Run the same with Flower, in its own environment."""
    size = {
        "members": members, "threshold": threshold, "length": length, "dropped": dropped, "clip": CLIP,
        "seed": SEED, "repeat": REPEAT,
    }  # fmt: skip
    script = Path(__file__).with_name("flower_side.py")
    done = subprocess.run(
        [python, script, json.dumps(size)], check=False, capture_output=True, text=True, timeout=1800
    )
    if done.returncode:
        raise SystemExit(f"Flower's side failed:\n{done.stderr}")
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def environment(folder: Path) -> Path:
    """Return the Python of an environment with Flower, made in `folder` unless it is there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", FLOWER], check=True, stdout=sys.stderr)
    return python


def side_by_side(python: Path, size: tuple[int, int, int, int]) -> dict[str, object]:
    """Measure one size on both sides."""
    members, colluders, length, dropped = size
    fedfair = ours(*size)
    threshold = fedfair["threshold"]
    if not isinstance(threshold, int):
        raise TypeError("a threshold is an integer")
    flower = theirs(python, members, threshold, length, dropped)
    return {
        "members": members,
        "colluders": colluders,
        "length": length,
        "dropped": dropped,
        "fedfair": fedfair,
        "flower": flower,
        "flower_over_fedfair": {
            "client_round": _ratio(flower, fedfair, "client_ms", "whole_round"),
            "client_round_with_a_set_up_of_ours_each_round": _figures(flower, "client_ms")["whole_round"]
            / (_figures(fedfair, "client_ms")["whole_round"] + _figures(fedfair, "client_ms")["set_up"]),
            "server_round": _ratio(flower, fedfair, "server_ms", "whole_round"),
            "server_unmask": _ratio(flower, fedfair, "server_ms", "unmask"),
            "split_one_secret": _number(flower["split_one_secret_ms"]) / _number(fedfair["split_one_secret_ms"]),
            "client_bytes_a_round": _bytes(flower, ()) / _bytes(fedfair, ("set_up",)),
        },
    }


def _ratio(flower: dict[str, object], fedfair: dict[str, object], part: str, step: str) -> float:
    return _figures(flower, part)[step] / _figures(fedfair, part)[step]


def _bytes(side: dict[str, object], without: tuple[str, ...]) -> float:
    return sum(count for step, count in _figures(side, "client_bytes_sent").items() if step not in without)


def _figures(side: dict[str, object], part: str) -> dict[str, float]:
    figures = side[part]
    if not isinstance(figures, dict):
        raise TypeError(f"{part} holds no figures")
    return figures


def _number(value: object) -> float:
    if not isinstance(value, float):
        raise TypeError(f"{value!r} is no figure")
    return value


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, help="keep Flower's environment here, or take it from here")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flower-") as temporary:
        python = environment(options.environment or Path(temporary))
        sizes = [side_by_side(python, size) for size in (QUICK if options.quick else SIZES)]
    report("secagg_vs_flower", unit="processor milliseconds of all threads, medians over the clients", sizes=sizes)


if __name__ == "__main__":
    main()
