"""A collaborator that kills itself, with SIGKILL, at one step of one sum; or only takes its time there.

Otherwise, `python dying_site.py STEP ROUND start ...` is `python -m collaborator start ...`.
ROUND is that of a training sum, or `evaluation:N`.
Steps: before-upload, variate-kept (its control variate is on the disk, its upload is nowhere yet), after-upload,
before-vote, before-answer, before-opened (it is told the sum, and has not yet taken it), slow (a second passes
before the upload).
"""

import os
import signal
import sys
import threading
import time

from collaborator import masked_worker
from collaborator.commands import app
from collaborator.continued_run import VariateStore
from fedfair.ids import RoundNumber
from fedfair.process.terminal import run_app
from fedfair.secagg.messages import Kind, kind_of
from fedfair.statistics.table import Purpose
from fedfair.terms.kept import KeptVariate
from fedfair.wire.frames import CollaboratorFrame
from fedfair.wire.receiving import ReceivedRequest, ReceivedSum

KINDS = {
    "before-upload": Kind.ROUND_START,
    "after-upload": Kind.ROUND_START,
    "slow": Kind.ROUND_START,
    "before-masks": Kind.PAIR_MASKS_REQUEST,
    "before-vote": Kind.SURVIVORS,
    "before-answer": Kind.UNMASK_REQUEST,
}
AFTER_SECONDS = 0.3
"""By then the upload has left this machine's loopback; the slow site makes the others wait longer than that.

Until then the site answers nothing more, so that it dies in this sum: a whole run may take no longer.
"""

SLOW_SECONDS = 1.5


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    step, (purpose, _, number) = sys.argv[1], ("training:" + sys.argv[2]).rpartition(":")
    wanted = (Purpose(purpose.removeprefix("training:")), int(number))
    dying = list[str]()
    hear, hear_sum = masked_worker.MaskedWorker._hear, masked_worker.MaskedWorker._hear_sum

    def fatally(
        self: masked_worker.MaskedWorker, question: ReceivedRequest, message: bytes
    ) -> list[CollaboratorFrame]:
        start = question.start
        if dying:
            time.sleep(SLOW_SECONDS)
        if (start.purpose, start.round) == wanted and kind_of(message) is KINDS.get(step):
            if step == "after-upload":
                threading.Timer(AFTER_SECONDS, die).start()
                dying.append(step)
            elif step == "slow":
                time.sleep(SLOW_SECONDS)
            else:
                die()
        return hear(self, question, message)

    def fatally_told(self: masked_worker.MaskedWorker, said: ReceivedSum) -> list[CollaboratorFrame]:
        asked = self._question
        if step == "before-opened" and asked is not None and (asked.start.purpose, asked.start.round) == wanted:
            die()
        return hear_sum(self, said)

    keep = VariateStore.keep

    def fatally_kept(self: VariateStore, number: RoundNumber, kept: KeptVariate, counted: RoundNumber) -> None:
        keep(self, number, kept, counted)
        if step == "variate-kept" and number == wanted[1]:
            die()

    VariateStore.keep = fatally_kept  # type: ignore[method-assign]
    masked_worker.MaskedWorker._hear_sum = fatally_told  # type: ignore[method-assign]
    masked_worker.MaskedWorker._hear = fatally  # type: ignore[method-assign]  # this process is the experiment
    sys.argv = ["collaborator", *sys.argv[3:]]
    run_app(app)


if __name__ == "__main__":
    main()
