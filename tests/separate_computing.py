"""A computing process of a site in a thread of the test: the same messages, without a start or confinement."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from collaborator.computing.apart import ComputedSite, SeparateComputation
from collaborator.computing.carrier import Channel, SocketBlocks
from collaborator.computing.serving import serve
from collaborator.computing.supervision import Supervision
from fedfair.ids import ParticipantId
from fedfair.plan.loading import load_plan
from fedfair.policy.site_config import SiteConfig, SitePolicy

SEED = bytes(range(32))
AT_ONCE = (0.0, 0.0, 0.0)
"""No wait before another process."""

Serving = Callable[[Channel], None]


def honest(channel: Channel) -> None:
    """Answer as a worker does that could give everything up."""
    serve(channel, ())


class InAThread:
    """A start of a computing process that is a thread."""

    def __init__(self, folder: Path, serving: Serving = honest) -> None:
        self.code, self.scratch = folder, folder / "scratch"
        self.scratch.mkdir(exist_ok=True)
        ours, theirs = socket.socketpair()
        self.channel, self._theirs = Channel(SocketBlocks(ours)), Channel(SocketBlocks(theirs))
        self.is_over, self.how_it_ended = False, "it is a thread, and has ended"
        threading.Thread(target=self._serve, args=(serving,), daemon=True).start()

    def _serve(self, serving: Serving) -> None:
        try:
            serving(self._theirs)
        finally:
            self._theirs.close()

    def end(self) -> None:
        self.is_over = True
        self.channel.close()
        self._theirs.close()


@contextmanager
def separate(
    plan_file: Path, name: str, serving: Serving = honest, starts: list[InAThread] | None = None
) -> Iterator[SeparateComputation]:
    """Yield the computation of a site whose process is a thread; `starts` is told of each."""
    made = [] if starts is None else starts

    def start() -> InAThread:
        made.append(InAThread(plan_file.parent, serving))
        return made[-1]

    config = SiteConfig(collaborator=name, device="cpu", threads=1, policy=SitePolicy(min_records=1))
    site = ComputedSite(load_plan(plan_file), config, ParticipantId(name), plan_file.parent, None)
    computation = SeparateComputation(
        site, Supervision(start, plan_file.with_suffix(".log"), AT_ONCE), lambda _: SEED
    )
    try:
        yield computation
    finally:
        computation.close()
