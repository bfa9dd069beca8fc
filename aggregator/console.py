"""Shows the operator what happens, from the preparation of a run to its end: text for people, JSON for programs.

Decides where each thing is shown: answers on standard output, everything else on standard error. Sentences and
levels stand on the classes of `fedfair.news`.
"""

from __future__ import annotations

from contextlib import ExitStack

from rich.text import Text

from aggregator.outcome import Ending
from aggregator.preparation import Run, Start, prepare
from fedfair.news.dashboard import TerminalDashboard
from fedfair.news.event import LoggedEvent, LogLevel, News
from fedfair.news.log import LogChoice, json_log
from fedfair.news.processors import Processor, ignore, json_lines, text_lines
from fedfair.process.terminal import console, error_console
from fedfair.results.document import ResultDocument, UnfinishedResult, to_text
from fedfair.results.warnings import reassurance, result_warnings


class RunConsole:
    """The output of one command, in the order of its methods.

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
        """Prepare the run and return it; the JSON log waits until the run has a name.

        Raises:
            FedfairError: something is missing or wrong.
        """
        if self._log is None:
            return prepare(start, self._show_early)
        early: list[News] = []
        try:
            run = prepare(start, early.append)
            self._log.run_id = run.records.run_id
        finally:
            for news in early:
                self._log.event(news.logged())
        return run

    def _show_early(self, news: News) -> None:
        """Show news before there is a run, whatever the verbosity."""
        if self._level.includes(news.level):
            _warn(news.sentence)

    def processor(self, run: Run, closed: ExitStack) -> Processor:
        """Return the processor that shows the run; what it has open is closed with the stack."""
        if self._quiet:
            return ignore
        if self._log is not None:
            return json_lines(self._log)
        if not error_console.is_terminal:
            return text_lines(_say, self._level)
        rounds, done = run.plan.training.rounds, run.training_run.rounds_done
        dashboard = TerminalDashboard(error_console, rounds, done, self._level)
        closed.callback(dashboard.close)
        return dashboard

    def result(self, result: ResultDocument | UnfinishedResult) -> None:
        """Print the result, if it was asked for."""
        if self._as_json:
            console.print_json(to_text(result))

    def finished(self, ending: Ending, result: ResultDocument | UnfinishedResult) -> None:
        """Say that the run is finished, and what there is to say of its result."""
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


def _warn(text: str) -> None:
    error_console.print(Text(text, style="yellow"), soft_wrap=True)


def _say(line: str) -> None:
    error_console.print(Text(line), soft_wrap=True)
