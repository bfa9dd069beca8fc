"""Shows how a masked round grows with the number of sites: bytes of one site, bytes and time of the aggregator.

All sites and the aggregator's protocol are the real objects (`Participant`, `Server`), in this one process, and
messages are handed over. So neither sockets nor TLS are in the figures. The body is small, so that what is seen is
what comes beyond it. Every round but the first of each size loses sites before their upload, after it, and before
their answer. The sum of every round is compared with the one that the survivors added.

Usage: python benchmarks/secagg_scale.py [--sites 25 50 100 200] [--rounds 20] [--body 100] [--table]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fedfair.secagg.effects import Send, ServerEffect, SiteEffect
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind
from fedfair.secagg.params import drop_outs_survived
from tests.secagg.federation_in_memory import Wire, shape_of, terms_of

VANISHING = (
    (0.02, (Kind.UPLOAD, Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES)),
    (0.01, (Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES)),
    (0.02, (Kind.UNMASK_SHARES,)),
)
"""(share of the sites, what they do not send any more), one row after the other, at least one site each."""


class Counting(Wire):
    """A federation that counts the bytes of site 1 and of the aggregator, and the aggregator's processor time."""

    def clear(self) -> None:
        """Begin to count again."""
        self.up = self.down = self.to_aggregator = self.from_aggregator = 0
        self.seconds = 0.0

    def hand_over(self, member: int, message: bytes) -> list[SiteEffect]:
        self.from_aggregator += len(message)
        self.down += len(message) if member == 1 else 0
        return super().hand_over(member, message)

    def to_server(self, member: int, send: Send) -> list[ServerEffect]:
        if (member, Kind(send.message[1])) not in self.silent:
            self.to_aggregator += len(send.message) + len(send.vector)
        if member == 1:
            self.up += len(send.message)
        begun = time.process_time()
        effects = super().to_server(member, send)
        self.seconds += time.process_time() - begun
        return effects


def vanishing(sites: int, number: int) -> tuple[set[tuple[int, Kind]], int]:
    """Return what is not sent in a round, and how many sites vanish; site 1 never does."""
    silent: set[tuple[int, Kind]] = set()
    gone, left = 0, drop_outs_survived(terms_of(sites).mode, sites, 0)
    for share, kinds in VANISHING:
        for _ in range(min(max(1, round(share * sites)), left - gone)):
            # Others in each round, all over the roster.
            member = 2 + (7 * gone + 11 * number) % (sites - 1)
            silent |= {(member, kind) for kind in kinds}
            gone += 1
    return silent, gone


def measured(sites: int, rounds: int, body: int) -> dict[str, object]:
    """Run rounds of one federation and return what they cost; the first has no drop-out."""
    wire = Counting(sites, terms_of(sites), {"training": shape_of(body)}, dtype=np.float32)
    wire.clear()
    begun = time.process_time()
    wire.set_up()
    found: dict[str, object] = {
        "sites": sites,
        "body": body,
        "set_up": {
            "seconds_all": time.process_time() - begun,
            "bytes_all": wire.to_aggregator + wire.from_aggregator,
        },
    }
    rows, opened_rounds, gone = [], 0, 0
    for number in range(rounds):
        wire.clear()
        wire.silent, missing = vanishing(sites, number) if number else (set(), 0)
        values = np.full(body, 0.5, np.float32)
        updates = {m: Update(np.array([(m + number) % 97 / 1.0]), values, 1) for m in range(1, sites + 1)}
        begun = time.process_time()
        opened = wire.round(updates)
        if opened is None:
            raise SystemExit(f"{sites} sites, round {number + 1}: {wire.aborted}")
        expected = 0.5 * len(opened.survivors)
        if np.abs(opened.body - expected).max() > 1e-3 or opened.weight != len(opened.survivors):
            raise SystemExit(f"{sites} sites, round {number + 1}: another sum than the survivors added")
        opened_rounds, gone = opened_rounds + 1, gone + missing
        vector = len(wire.uploads[1].vector)
        rows.append(
            {
                "survivors": len(opened.survivors),
                "bytes_up_of_a_site_beyond_vectors": wire.up,
                "bytes_down_of_a_site": wire.down,
                "bytes_of_the_aggregator": wire.to_aggregator + wire.from_aggregator,
                "cpu_seconds_of_the_aggregator": wire.seconds,
                "cpu_seconds_of_all": time.process_time() - begun,
                "bytes_vector": vector,
            }
        )
        print(json.dumps({"sites": sites, "round": number + 1, **rows[-1]}), file=sys.stderr, flush=True)
    return {
        **found,
        "rounds_opened": opened_rounds,
        "sites_that_vanished": gone,
        "whole": rows[0],
        "last": rows[-1],
    }


def row(found: dict[str, object]) -> str:
    """Return one row of the table in the documentation."""
    rounds = [found["whole"], found["last"]]
    cells = [str(found["sites"])]
    for key, scale, digits in (
        ("bytes_up_of_a_site_beyond_vectors", 1e-3, 1),
        ("bytes_of_the_aggregator", 1e-6, 2),
        ("cpu_seconds_of_the_aggregator", 1e3, 0),
    ):
        cells += [f"{scale * one[key]:.{digits}f}" for one in rounds if isinstance(one, dict)]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[25, 50, 100, 200])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--body", type=int, default=100)
    parser.add_argument(
        "--table", action="store_true", help="rows of the table in docs/explain/secure-aggregation.md"
    )
    options = parser.parse_args()
    for sites in options.sites:
        found = measured(sites, options.rounds, options.body)
        print(row(found) if options.table else json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
