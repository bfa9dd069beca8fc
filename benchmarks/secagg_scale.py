"""Shows how a masked round grows with the number of sites: bytes of one site, bytes and time of the aggregator.

All sites and the aggregator's protocol are the real objects (`Participant`, `Server`), in one process; messages
are handed over. So neither sockets nor TLS are in the figures. `light_sites` says what the sites do together. The
body is small, so that what is seen is what comes beyond it. Every round but the first of each size loses sites
before their upload, after it, and before their answer. The sum of every round is compared with the one that the
survivors added. One line is printed for each set-up and each round; several sizes can run side by side.

Usage: python benchmarks/secagg_scale.py [--sites 25 50 100 200] [--rounds 20] [--body 100] > measured.jsonl
       python benchmarks/secagg_scale.py --draw measured.jsonl --chart docs/explain/masked-rounds.svg
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from light_sites import ForgivingRoster, LightSites

from fedfair.report.figures import Chart, ChartAxis, Series, draw
from fedfair.report.svg import standalone
from fedfair.secagg.effects import Log, ReplaceLog, Send, ServerEffect, SiteEffect
from fedfair.secagg.masking import MaskedVector, Update
from fedfair.secagg.messages import Kind
from fedfair.secagg.params import drop_outs_survived
from fedfair.secagg.participant import Participant
from fedfair.secagg.server import Server
from tests.secagg.federation_in_memory import Wire, roster_of, shape_of, terms_of

KEYS = {
    "up": "bytes_up_of_a_site_beyond_vectors",
    "aggregator": "bytes_of_the_aggregator",
    "cpu": "cpu_seconds_of_the_aggregator",
}

VANISHING = (
    (0.02, (Kind.UPLOAD, Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES)),
    (0.01, (Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES)),
    (0.02, (Kind.UNMASK_SHARES,)),
)
"""(share of the sites, what they do not send any more), one row after the other, at least one site each."""


class TimedServer(Server):
    """The aggregator's side of the protocol, which counts its processor time."""

    seconds = 0.0
    light: LightSites | None = None

    def receive(self, sender: int, raw: bytes, vector: MaskedVector = b"") -> list[ServerEffect]:
        return self._timed(super().receive, sender, raw, vector)

    def open_session(self, members: Iterable[int]) -> list[ServerEffect]:
        return self._timed(super().open_session, members)

    def deadline(self) -> list[ServerEffect]:
        return self._timed(super().deadline)

    def _timed(self, call: Callable[..., list[ServerEffect]], *arguments: object) -> list[ServerEffect]:
        if self.light is None:
            raise SystemExit("no server to measure")
        self.light.is_asleep = True  # what sites have computed is not the aggregator's
        begun = time.process_time()
        try:
            return call(*arguments)
        finally:
            self.seconds += time.process_time() - begun
            self.light.is_asleep = False


class Counting(Wire):
    """A federation that counts the bytes of site 1 and of the aggregator, and the aggregator's processor time.

    What sites write to their logs is not kept.
    """

    def __post_init__(self) -> None:
        self.light_roster = ForgivingRoster(roster_of(self.members))
        super().__post_init__()
        self.server: TimedServer = TimedServer(
            self.roster, self.plan, self.shapes, self.randomness, np.dtype(self.dtype)
        )
        self.clear()

    def site(self, index: int) -> Participant:
        pinned, self.roster = self.roster, self.light_roster
        try:
            return super().site(index)
        finally:
            self.roster = pinned

    def carry_out(self, member: int, effects: list[SiteEffect]) -> list[Send]:
        return super().carry_out(member, [one for one in effects if not isinstance(one, Log | ReplaceLog)])

    def clear(self) -> None:
        """Begin to count again."""
        self.up = self.down = self.to_aggregator = self.from_aggregator = 0
        self.server.seconds = 0.0
        self.light_roster.forget()

    def hand_over(self, member: int, message: bytes) -> list[SiteEffect]:
        self.from_aggregator += len(message)
        self.down += len(message) if member == 1 else 0
        return super().hand_over(member, message)

    def to_server(self, member: int, send: Send) -> list[ServerEffect]:
        if (member, Kind(send.message[1])) not in self.silent:
            self.to_aggregator += len(send.message) + len(send.vector)
        if member == 1:
            self.up += len(send.message)
        return super().to_server(member, send)


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


def measured(sites: int, rounds: int, body: int, light: LightSites) -> None:
    """Run rounds of one federation and print what each costs; the first has no drop-out."""
    wire = Counting(sites, terms_of(sites, greatest_weight=1), {"training": shape_of(body)}, dtype=np.float32)
    wire.server.light = light
    begun = time.process_time()
    wire.set_up()
    found: dict[str, object] = {
        "sites": sites,
        "body": body,
        "set_up": {
            "cpu_seconds_of_the_aggregator": wire.server.seconds,
            "cpu_seconds_of_all": time.process_time() - begun,
            "bytes_of_the_aggregator": wire.to_aggregator + wire.from_aggregator,
            "bytes_of_a_site": wire.up + wire.down,
        },
    }
    light.forget()
    print(json.dumps(found), flush=True)
    for number in range(rounds):
        wire.clear()
        light.forget()
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
        row = {
            "survivors": len(opened.survivors),
            "vanished": missing,
            "bytes_up_of_a_site_beyond_vectors": wire.up,
            "bytes_down_of_a_site": wire.down,
            "bytes_of_the_aggregator": wire.to_aggregator + wire.from_aggregator,
            "cpu_seconds_of_the_aggregator": wire.server.seconds,
            "cpu_seconds_of_all": time.process_time() - begun,
            "bytes_vector": len(wire.uploads[1].vector),
        }
        print(json.dumps({"sites": sites, "round": number + 1, **row}), flush=True)


def read(paths: Sequence[Path]) -> dict[int, dict[str, Any]]:
    """Return by number of sites what was measured: the set-up, and every round by its number."""
    found: dict[int, dict[str, Any]] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            one = json.loads(line)
            if "set_up" in one:
                found[one["sites"]] = {"set_up": one["set_up"], "rounds": {}}
            else:
                found[one["sites"]]["rounds"][one["round"]] = one
    return dict(sorted(found.items()))


def typical(rounds: Mapping[int, Mapping[str, float]], key: str) -> tuple[float, float]:
    """Return a figure of the round without drop-outs, and the median of those with some."""
    later = [one[key] for number, one in rounds.items() if number > 1]
    return rounds[1][key], statistics.median(later) if later else math.nan


def table(measurements: Mapping[int, Mapping[str, Any]]) -> str:
    """Return the rows of the table in the documentation."""
    lines = []
    for sites, one in measurements.items():
        cells = [str(sites), str(len(one["rounds"]))]
        for key, scale, digits in (("up", 1e-3, 1), ("aggregator", 1e-6, 2), ("cpu", 1e3, 0)):
            found = typical(one["rounds"], KEYS[key])
            cells += ["not run" if math.isnan(each) else f"{scale * each:,.{digits}f}" for each in found]
        cells += [f"{1e-6 * one['set_up'][KEYS['aggregator']]:,.1f}", f"{one['set_up'][KEYS['cpu']]:,.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def chart(found: Mapping[int, Mapping[str, Any]]) -> str:
    """Return the picture: the aggregator's bytes and processor time against the number of sites."""
    sites = list(map(float, found))
    charts = []
    for key, scale, words in (("aggregator", 1e-6, "MB"), ("cpu", 1.0, "seconds of one processor")):
        whole, some = zip(*(typical(one["rounds"], KEYS[key]) for one in found.values()), strict=True)
        set_up = [one["set_up"][KEYS[key]] for one in found.values()]
        curves = {"a round, nobody vanishes": whole, "a round, 5 % vanish": some, "set-up": set_up}
        # What grows as the number of sites is parallel to this line, what grows as its square is steeper.
        last = max(sites)
        curves["as the number of sites"] = [whole[-1] * one / last for one in sites]
        series = [Series(name, sites, [scale * value for value in values]) for name, values in curves.items()]
        axes = ChartAxis("sites", log=True), ChartAxis(words, log=True)
        charts.append(Chart(*axes, series, (), f"The aggregator: {words}"))
    title = "What masked rounds take at the aggregator, by the number of sites"
    words = "Both axes are logarithmic. Beyond 128 sites a round and the set-up grow as their number."
    return standalone(draw(charts, "masked-rounds", title, words, columns=2))


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[25, 50, 100, 200])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--body", type=int, default=100)
    parser.add_argument("--draw", type=Path, nargs="+", help="files with what was printed; print their table")
    parser.add_argument("--chart", type=Path, help="with --draw: write the picture of the documentation here")
    options = parser.parse_args()
    if options.draw:
        found = read(options.draw)
        print(table(found))
        if options.chart:
            options.chart.write_text(chart(found))
        return
    for sites in options.sites:
        with LightSites() as light:
            measured(sites, options.rounds, options.body, light)


if __name__ == "__main__":
    main()
