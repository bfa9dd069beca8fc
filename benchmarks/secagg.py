"""Times secure aggregation against the floor it cannot beat: AES-256-CTR keystream plus one addition.

The floor is measured in the same process, on the same block size, before and after each measurement. Prints
JSON: medians, with the number of repetitions; times in milliseconds unless the key says otherwise. Next to the
time on the wall stands the processor time of all threads together (`cpu`), which a busy machine disturbs less.
Usage: python benchmarks/secagg.py [--repeat 5] [--threads 2] [--quick]
"""

from __future__ import annotations

import argparse
import json
import platform
import secrets
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.secagg.federation_in_memory import arrived_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fedfair.secagg.effects import Send, ServerEffect, SiteEffect
from fedfair.secagg.fixedpoint import BLOCK_VALUES, BodyCode
from fedfair.secagg.keys import Secret
from fedfair.secagg.masking import MaskedSum, SignedSeed, Update, masked_vector
from fedfair.secagg.messages import Kind
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.prg import BLOCK_BYTES, Mask, apply_masks
from fedfair.secagg.recovery import Announcement
from fedfair.secagg.shamir import split
from fedfair.secagg.shape import SumShape
from fedfair.secagg.sum_check import Tagging, check_of
from tests.secagg.federation_in_memory import MODEL, Wire, shape_of, terms_of


def both(work: Callable[[], object], repeat: int) -> dict[str, float]:
    """Return the median milliseconds of `work` on the wall and on the processors, after one unmeasured run."""
    work()
    wall, cpu = [], []
    for _ in range(repeat):
        begun, used = time.perf_counter(), time.process_time()
        work()
        wall.append(1e3 * (time.perf_counter() - begun))
        cpu.append(1e3 * (time.process_time() - used))
    return {"wall_ms": statistics.median(wall), "cpu_ms": statistics.median(cpu)}


def median(work: Callable[[], object], repeat: int) -> float:
    """Return the median processor time of `work`, which uses one thread, in milliseconds."""
    return both(work, repeat)["cpu_ms"]


def floor_ns(repeat: int) -> float:
    """Return the nanoseconds per u32 of keystream plus addition over one block that stays in the cache."""
    context = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
    zeros, scratch = bytes(BLOCK_BYTES), bytearray(BLOCK_BYTES)
    stream, block = np.frombuffer(scratch, np.uint32), np.zeros(BLOCK_BYTES // 4, np.uint32)

    def work() -> None:
        for _ in range(64):
            context.update_into(zeros, scratch)
            np.add(block, stream, out=block)

    return median(work, max(repeat, 5)) * 1e6 / (64 * block.size)


def seeds(pairs: int) -> list[SignedSeed]:
    """Return fresh seeds: the own one and one for each other member."""
    return [SignedSeed(Secret(secrets.token_bytes(31)), bool(i % 2)) for i in range(pairs)]


def masks(length: int, members: int, repeat: int) -> dict[str, float]:
    """Mask `length` words with `members` keystreams in one thread."""
    words = np.zeros(length, np.uint32)
    keys = [Mask(Secret(secrets.token_bytes(32)), negative=bool(i % 2)) for i in range(members)]
    before = floor_ns(repeat)
    per = median(lambda: apply_masks(words, keys), repeat) * 1e6 / (length * members)
    floor = (before + floor_ns(repeat)) / 2
    return {"ns_per_element_and_pair": per, "floor_ns": floor, "times_the_floor": per / floor}


def upload(length: int, members: int, repeat: int, threads: int) -> dict[str, object]:
    """Build one upload's vector, encoding, masking and hashing included."""
    shape, code = SumShape((), (length,)), BodyCode(32, members, 100, (length,), (1.0,))
    tagging = Tagging(check_of(Secret(secrets.token_bytes(32)), shape), 1)
    body = np.frombuffer(secrets.token_bytes(4 * length), np.int32).astype(np.float32) * np.float32(2.0**-32)
    update, own = Update(np.zeros(0), body, 50), seeds(members)
    key = Secret(secrets.token_bytes(32))
    found: dict[str, object] = {"d": length, "n": members}
    for count in (1, threads):
        work = partial(masked_vector, update, shape, code, own, key, count, tagging)
        found[f"{count}_threads"] = both(work, repeat)
    tracemalloc.start()
    masked_vector(update, shape, code, own, key, threads, tagging)
    found["peak_extra_memory_of_float32_bytes"] = tracemalloc.get_traced_memory()[1] / body.nbytes
    tracemalloc.stop()
    return found


def sum_check(length: int, members: int, repeat: int, threads: int) -> dict[str, object]:
    """Make the check tag of one contribution, and compare with an upload that carries none."""
    shape, own = SumShape((), (length,)), seeds(members)
    body = np.frombuffer(secrets.token_bytes(4 * length), np.uint32)
    found: dict[str, object] = {"d": length, "n": members}
    key = Secret(secrets.token_bytes(32))
    found["coefficients"] = both(lambda: check_of(key, shape), repeat)
    check = check_of(key, shape)
    blocks = -(-length // BLOCK_VALUES)
    for count in (1, threads):
        bounds = [blocks * part // count for part in range(count + 1)]

        def tag(first: int, last: int) -> int:
            return check.body(body[first * BLOCK_VALUES : last * BLOCK_VALUES], first)

        with ThreadPoolExecutor(count) as pool:
            work = partial(lambda pool, bounds: list(pool.map(tag, bounds[:-1], bounds[1:])), pool, bounds)
            found[f"tag_{count}_threads"] = both(work, repeat)
    code, change = BodyCode(32, members, 100, (length,), (1.0,)), np.zeros(length, np.float32)
    update, rounding = Update(np.zeros(0), change, 50), Secret(secrets.token_bytes(32))
    for name, tagging in (("upload", Tagging(check, 1)), ("upload_without_tag", None)):
        what = replace(shape, checked=tagging is not None)
        found[name] = both(partial(masked_vector, update, what, code, own, rounding, threads, tagging), repeat)
    return found


def unmask(length: int, members: int, repeat: int, threads: int) -> dict[str, object]:
    """Take away the own masks of `members` and decode."""
    found: dict[str, object] = {"d": length, "n": members}
    own = seeds(members)
    for count in (1, threads):
        total = MaskedSum(SumShape((), (length,)), 32)
        found[f"{count}_threads"] = both(partial(total.remove, own, count), repeat)
    return found


def sharing(members: int, threshold: int, repeat: int) -> dict[str, float]:
    """Split one secret and all of a member's secrets."""
    points = range(1, members + 1)
    secret = secrets.token_bytes(31)
    one = median(lambda: split(secret, points, threshold, secrets.token_bytes), repeat)
    every = median(lambda: [split(secret, points, threshold, secrets.token_bytes) for _ in range(members)], repeat)
    return {"n": members, "t": threshold, "cpu_ms_one_secret": one, "cpu_ms_all_secrets_of_a_member": every}


def whole(members: int, colluders: int, length: int, dropped: int) -> dict[str, float]:
    """Run set-up and rounds of a whole federation; report the processor time of one site and of the aggregator."""
    wire = Wire(members, terms_of(members, colluders), {"training": shape_of(length)}, dtype=np.float32, threads=1)
    spent = {"site": 0.0, "server": 0.0}
    by_kind: dict[str, float] = {}
    hand_over, to_server = wire.hand_over, wire.to_server

    def timed_site(member: int, message: bytes) -> list[SiteEffect]:
        begun = time.process_time()
        effects = hand_over(member, message)
        if member == 1:
            taken = 1e3 * (time.process_time() - begun)
            spent["site"] += taken
            name = Kind(message[1]).name.lower()
            by_kind[name] = by_kind.get(name, 0.0) + taken
        return effects

    def timed_server(member: int, send: Send) -> list[ServerEffect]:
        begun = time.process_time()
        effects = to_server(member, send)
        taken = 1e3 * (time.process_time() - begun)
        spent["server"] += taken
        by_kind["last_answer_at_server"] = taken
        return effects

    wire.hand_over, wire.to_server = timed_site, timed_server  # type: ignore[method-assign]
    wire.set_up()
    found = {"n": members, "d": length, "dropped": dropped, "cpu_ms_set_up_of_a_site": spent["site"]}
    body = np.zeros(length, np.float32)
    updates = {m: Update(np.array([m / 8]), body, 1) for m in range(1, members + 1)}
    wire.silent = {(m, Kind.UPLOAD) for m in range(members - dropped + 1, members + 1)}
    spent["server"] = 0.0
    if wire.round(updates) is None:
        raise SystemExit(f"the round was aborted: {wire.aborted}")
    found["cpu_ms_server_whole_round"] = spent["server"]
    found["cpu_ms_site_enter_round"] = by_kind["round_start"]
    found["cpu_ms_site_answer"] = by_kind["unmask_request"]
    found["bytes_upload_without_vector"] = len(wire.uploads[1].message)
    found["bytes_vector"] = len(wire.uploads[1].vector)
    return found


def opening(members: int, colluders: int, length: int, dropped: int, repeat: int) -> float:
    """Return the median processor milliseconds from the last needed answer to the decoded sum."""
    times: list[float] = []
    for _ in range(repeat):
        wire = Wire(
            members, terms_of(members, colluders), {"training": shape_of(length)}, dtype=np.float32, threads=1
        )
        wire.set_up()
        wire.silent = {(m, Kind.UPLOAD) for m in range(members - dropped + 1, members + 1)}
        body = np.zeros(length, np.float32)
        wire.updates = {m: Update(np.array([m / 8]), body, 1) for m in range(1, members + 1)}
        effects = wire.server.start_round("training", MODEL, (1.0,), wire.updates)
        round_state = arrived_of(wire.server)  # to time one step of a whole round
        if round_state is None:
            raise SystemExit("no round")
        round_state.open = partial(_timed, times, round_state.open)  # type: ignore[method-assign]
        wire.deliver(effects)
        while wire.opened is None:
            wire.deliver(wire.server.deadline())
    return statistics.median(times)


def _timed(
    times: list[float],
    open_sum: Callable[[np.dtype[np.floating], int], tuple[OpenedSum, Announcement]],
    dtype: np.dtype[np.floating],
    threads: int,
) -> tuple[OpenedSum, Announcement]:
    begun = time.process_time()
    opened = open_sum(dtype, threads)
    times.append(1e3 * (time.process_time() - begun))
    return opened


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    repeat, threads = options.repeat, options.threads
    large, medium = (200_000, 50_000) if options.quick else (11_200_000, 1_000_000)
    report = {
        "machine": platform.processor() or platform.machine(),
        "repeat": repeat,
        "masks": [masks(medium, 10, repeat), masks(medium, 50, repeat)],
        "upload": [upload(large, 10, repeat, threads), upload(medium, 50, repeat, threads)],
        "sum_check": [sum_check(large, 10, repeat, threads), sum_check(medium, 10, repeat, threads)],
        "unmask": unmask(medium, 50, repeat, threads),
        "sharing": sharing(50, 34, repeat),
        "federation": [whole(50, 16, 1000, 0), whole(50, 16, 1000, 16)],
        "opening": {
            "n": 50,
            "d": medium,
            "cpu_ms_no_drop_out": opening(50, 16, medium, 0, min(repeat, 3)),
            "cpu_ms_16_dropped": opening(50, 16, medium, 16, 1),
        },
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
