"""A lower bound on epsilon from one run: how often guesses about which records were trained on are right.

After Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run", theorem 5.2, for records that
are trained on with a chance p other than 1/2, each by a draw of its own. The scores must be functions of the model
and of the record alone.

Let a mechanism be (epsilon, delta) differentially private for leaving one record out, S_i the draw of record i,
and y what it gave. Look at the records one after the other. Given the draws before it, y has the density P1 where
S_i = 1, and P0 where not, each a mixture over the draws after it; so P1 <= e^epsilon P0 + delta over every set.
With

    q = p e^epsilon / (p e^epsilon + 1 - p)

the chance of S_i = 1 given y exceeds q by f_i(y) >= 0 at most, and

    E f_i = integral (p P1 - q (p P1 + (1 - p) P0))_+ = p (1 - q) integral (P1 - e^epsilon P0)_+,

because q (1 - p) = p (1 - q) e^epsilon; that is p (1 - q) delta at most. Given y, say "member" of r records,
whichever: a guess is right where a uniform draw of its own is at most q + f_i. So the number of right ones is at
most binomial of r trials of chance q, unless one of those draws lies between q and q + f_i. Among all N records
that has a chance of N p (1 - q) delta at most, and q >= p. "No member" is the same with 1 - p in place of p. As
the bound holds given y, the guesses and r may depend on y: they are the records with the lowest scores and with
the highest, of both kinds together, without a look at their sides. Both times the term is at most N p (1 - p)
delta. The paper's own, 2 N delta at its worst, exceeds it.

So P(X >= right) below `level` refutes every smaller epsilon, and its root is Clopper and Pearson's lower end. The
tests, one for each share, direction and attack, divide what is left of the chance of a mistake (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedfair.errors import LocalProtocolError
from fedfair.fairness.binomial_tail import chance_interval
from fedfair.privacy.membership import ScoreCounts

GUESSED = (0.01, 0.03, 0.1, 0.25, 0.5)
"""The shares of all records about which so many tests guess, at either end of the scores."""


def epsilon_at_least(attacks: Sequence[ScoreCounts], share: float, mistake: float, delta: float = 0.0) -> float:
    """Return an epsilon that the mechanism's true one is not below, at `delta`, but with a chance of `mistake`.

    Args:
        attacks: the counts of each attack, of the same records; at least one.
        share: p in (0, 1), the chance with which each record was trained on, by a draw of its own.
        mistake: in (0, 1/2].
        delta: of the definition, from 0.

    Returns:
        Epsilon, from 0; 0 where the counts refute nothing.

    Raises:
        LocalProtocolError: p or `mistake` is out of range.
    """
    if not (0.0 < share < 1.0 and 0.0 < mistake <= 0.5 and delta >= 0.0):
        raise LocalProtocolError(f"no bound on epsilon at p = {share}, mistake {mistake} and delta {delta}")
    records = max(int(one.found[-1] + one.mistaken[-1]) for one in attacks)
    left = mistake - 2.0 * records * share * (1.0 - share) * delta
    level = left / (2.0 * len(GUESSED) * len(attacks))
    if level <= 0.0:
        return 0.0
    members = (_refuted(one, share, level) for one in attacks)
    others = (_refuted(ScoreCounts(one.held_out[::-1], one.train[::-1]), 1.0 - share, level) for one in attacks)
    return max(0.0, *members, *others)


def _refuted(counts: ScoreCounts, chance: float, level: float) -> float:
    """Return the greatest epsilon that guesses about the lowest scores refute; 0 where they refute none.

    Args:
        counts: whose "train" holds the records of whom the guess is right.
        chance: of such a record before anything is known.
        level: of each test.
    """
    right, guesses = counts.found, counts.found + counts.mistaken
    greatest = 0.0
    for part in GUESSED:
        at = int(np.searchsorted(guesses, part * guesses[-1], side="right")) - 1
        if guesses[at]:
            least = chance_interval(int(right[at]), int(guesses[at]), level)[0]
            if least > chance:
                greatest = max(greatest, math.log(least * (1.0 - chance) / ((1.0 - least) * chance)))
    return greatest
