"""An aggregator that kills itself, with SIGKILL, at one step of one masked sum.

Otherwise, `python dying_aggregator.py STEP PURPOSE:ROUND start ...` is `python -m aggregator start ...`.
Steps: a kind of message, such as `upload` or `unmask_shares`, which it dies of when the first one arrives, or
`last-upload`; or `before-survivors` and `before-unmask_request`, when it is about to send the first one.
"""

import os
import signal
import sys

from aggregator.commands import app
from aggregator.driver import RunDriver
from fedfair.process.terminal import run_app
from fedfair.rounds.events import Effect, Event, MessageArrived, SendMessage
from fedfair.rounds.federation import Federation
from fedfair.secagg.messages import kind_of
from fedfair.secagg.server_state import EXPECTED


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    step, _, number = (sys.argv[1], *sys.argv[2].partition(":")[1:])
    wanted = (sys.argv[2].partition(":")[0], int(number))
    decide, carry_out = RunDriver._decide, RunDriver._carry_out

    def is_due(federation: Federation, arrived: bytes = b"") -> bool:
        request, protection = federation.request, federation._run.protection
        assert protection is not None
        # An answer too many of the sum before may still arrive.
        expected = not arrived or EXPECTED[protection.server.state] is kind_of(arrived)
        return expected and request is not None and (request.purpose.value, request.round) == wanted

    async def fatally_decide(self: RunDriver, event: Event) -> list[Effect]:
        if isinstance(event, MessageArrived) and is_due(self._federation, event.message):
            kind, last = kind_of(event.message).name.lower(), len(self._federation.waiting_for) == 1
            if step in (kind, f"last-{kind}" if last else kind):
                die()
        return await decide(self, event)

    async def fatally_carry_out(self: RunDriver, effect: Effect) -> None:
        if isinstance(effect, SendMessage) and is_due(self._federation):
            kind = kind_of(effect.message).name.lower()
            if step == f"before-{kind}":
                die()
        await carry_out(self, effect)

    RunDriver._decide = fatally_decide  # type: ignore[method-assign]  # this process is the experiment
    RunDriver._carry_out = fatally_carry_out  # type: ignore[method-assign]
    sys.argv = ["aggregator", *sys.argv[3:]]
    run_app(app)


if __name__ == "__main__":
    main()
