"""Tells the operator what happens, from the preparation of a run to its end: text for people, JSON for programs.

Decides where each thing is told: answers on standard output, everything else on standard error. Sentences are
`notice_words.py`'s, events `notice_events.py`'s.
"""

from __future__ import annotations

from rich.text import Text

from aggregator.notice_events import LevelledRunObserver, RunEvents, event_of
from aggregator.notice_words import notice_words
from aggregator.notices import Notice
from aggregator.observer import RunLines, RunObserver, SilentRunObserver
from aggregator.outcome import Ending
from aggregator.preparation import Run, Start, prepare
from aggregator.terminal_dashboard import TerminalDashboard
from fedfair.process.event_log import LogChoice, json_log
from fedfair.process.events import LoggedEvent, LogLevel
from fedfair.process.terminal import console, error_console
from fedfair.results.document import ResultDocument, UnfinishedResult, to_text
from fedfair.results.warnings import reassurance, result_warnings


class Telling:
    """Tells of one command, in the order of its methods.

    Args:
        choice: what the operator wants to read.
        quiet: show only warnings and errors.
        as_json: print the result as JSON at the end.
    """

    def __init__(self, choice: LogChoice, *, quiet: bool, as_json: bool) -> None:
        self._level = choice.level
        self._quiet = quiet
        self._as_json = as_json
        self._log = json_log(choice)

    def prepared(self, start: Start) -> Run:
        """Prepare the run and return it; what programs are told waits until the run has a name.

        Raises:
            FedfairError: something is missing or wrong.
        """
        if self._log is None:
            return prepare(start, LevelledRunObserver(_Warnings(), self._level).noticed)
        held: list[Notice] = []
        try:
            run = prepare(start, held.append)
            self._log.run_id = run.records.run_id
        finally:
            for notice in held:
                self._log.event(event_of(notice))
        return run

    def observer(self, run: Run) -> RunObserver:
        """Return the observer that shows the run."""
        if self._quiet:
            return SilentRunObserver()
        rounds, group_size = run.plan.training.rounds, run.plan.objective.worst_group_size
        if self._log is not None:
            return RunEvents(self._log, rounds, group_size)
        shown: RunObserver
        if error_console.is_terminal:
            shown = TerminalDashboard(error_console, rounds, run.training_run.rounds_done, group_size)
        else:
            shown = RunLines(_say, rounds, group_size, self._level)
        return LevelledRunObserver(shown, self._level)

    def result(self, result: ResultDocument | UnfinishedResult) -> None:
        """Print the result, if it was asked for."""
        if self._as_json:
            console.print_json(to_text(result))

    def finished(self, ending: Ending, result: ResultDocument | UnfinishedResult) -> None:
        """Tell that the run is finished, and what there is to say of its result."""
        if isinstance(result, ResultDocument):
            for doubt in result_warnings(result):
                if self._log is not None:
                    self._log.doubt("result_doubted", doubt)
                elif self._level.includes(LogLevel.WARNING):
                    _warn(doubt)
        words = f"{ending.state.value}: {ending.words}"
        if self._log is not None:
            fields = {"state": ending.state.value, "rounds_done": result.rounds}
            self._log.event(LoggedEvent("run_ended", LogLevel.INFO, words, {**fields}))
        elif not self._as_json and not self._quiet:
            console.print(Text(words))
            for sentence in reassurance(result) if isinstance(result, ResultDocument) else ():
                console.print(Text(sentence), soft_wrap=True)


class _Warnings(SilentRunObserver):
    """Shows notices before there is a run, whatever the verbosity."""

    def noticed(self, notice: Notice) -> None:
        _warn(notice_words(notice))


def _warn(text: str) -> None:
    error_console.print(Text(text, style="yellow"), soft_wrap=True)


def _say(line: str) -> None:
    error_console.print(Text(line), soft_wrap=True)
