"""A site's releases under noise: the only thing that a ledger composes.

Decides nothing about noise; what the releases are worth together is `accounting.py`'s. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from fedfair.errors import PrivacyError
from fedfair.statistics.table import Purpose

RELEASED_FOR = frozenset(purpose.statistic.release for purpose in Purpose)
"""The words of a ledger for what is released."""


@dataclass(frozen=True, slots=True)
class GaussianRelease:
    """Sums over Poisson samples of a site's records, each with Gaussian noise.

    Attributes:
        purpose: what it was released for.
        noise_multiplier: standard deviation of the noise in units of the most that one record changes (sigma);
            positive.
        sampling_rate: probability with which each record was in a sample, independently (q), in (0, 1].
        steps: how many such sums, at least 1.
        clip: largest norm of one record's gradient that counted in full, positive; None where nothing is clipped.
    """

    purpose: str
    noise_multiplier: float
    sampling_rate: float
    steps: int
    clip: float | None = None

    def __post_init__(self) -> None:
        sound = (
            self.purpose in RELEASED_FOR
            and math.isfinite(self.noise_multiplier)
            and self.noise_multiplier > 0.0
            and 0.0 < self.sampling_rate <= 1.0
            and self.steps >= 1
            and (self.clip is None or (math.isfinite(self.clip) and self.clip > 0.0))
        )
        if not sound:
            raise PrivacyError(
                f"a release for {self.purpose!r} with noise multiplier {self.noise_multiplier}, sampling rate "
                f"{self.sampling_rate}, {self.steps} steps and clip {self.clip} promises nothing",
                "noise and clip must be above 0, the rate above 0 and at most 1, and there must be a step",
            )


@dataclass(frozen=True, slots=True)
class SharedNoiseRelease:
    """Sums over all of a site's records, to whose noise every site adds a share (`shared_noise.py`).

    Attributes:
        purpose: what it was released for.
        noise_multiplier: of the Gaussian noise that is worth no more, at every whole Renyi order (z); positive.
        steps: how many such sums, at least 1.
    """

    purpose: str
    noise_multiplier: float
    steps: int

    def __post_init__(self) -> None:
        sound = math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0.0 and self.steps >= 1
        if not (sound and self.purpose in RELEASED_FOR):
            raise PrivacyError(
                f"a release for {self.purpose!r} with noise multiplier {self.noise_multiplier} and {self.steps} "
                "sums promises nothing",
                "the noise must be above 0, and there must be a sum",
            )


RecordRelease: TypeAlias = GaussianRelease | SharedNoiseRelease
"""What protects single records."""


@dataclass(frozen=True, slots=True)
class SkellamRelease:
    """Masked sums of whole numbers, each collaborator's part protected by the noise shares of all sites.

    Attributes:
        purpose: what it was released for.
        delta_1: the most that one collaborator's part can be in L1 norm, in steps of the ring; positive.
        delta_2: the most that it can be in L2 norm; positive, and at most delta_1.
        mu: least variance of the noise on every entry of a sum, in squared steps; positive.
        count: how many such sums, at least 1.
    """

    purpose: str
    delta_1: float
    delta_2: float
    mu: float
    count: int

    def __post_init__(self) -> None:
        sizes = (self.delta_1, self.delta_2, self.mu)
        sound = (
            self.purpose in RELEASED_FOR
            and all(math.isfinite(size) and size > 0.0 for size in sizes)
            and self.delta_2 <= self.delta_1
            and self.count >= 1
        )
        if not sound:
            raise PrivacyError(
                f"a release for {self.purpose!r} of {self.count} sums with norms {self.delta_1} and "
                f"{self.delta_2} under noise of variance {self.mu} promises nothing",
                "norms and noise must be above 0, the L1 norm no less than the L2 norm, and there must be a sum",
            )


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Sums over a site's records without noise: no epsilon covers them, nor anything else about these records.

    Attributes:
        purpose: what they were released for.
    """

    purpose: str


Release: TypeAlias = RecordRelease | SkellamRelease

Record: TypeAlias = Callable[[Release], None]
"""Writes a release down, before its noise is drawn; raises a PrivacyError where the site cannot afford it."""


class ReleaseLog:
    """Releases in memory, in order: for a simulation, and to know what one run has spent.

    Attributes:
        releases: everything about single records that was recorded so far.
        sums: everything about the collaborator as a whole.
    """

    def __init__(self) -> None:
        self.releases: list[RecordRelease] = []
        self.sums: list[SkellamRelease] = []

    def record(self, release: Release) -> None:
        """Write a release down."""
        if isinstance(release, RecordRelease):
            self.releases.append(release)
        else:
            self.sums.append(release)


def combined(releases: Iterable[RecordRelease]) -> tuple[RecordRelease, ...]:
    """Return the same releases with those alike in all but their steps counted together, in order."""
    steps: dict[RecordRelease, int] = {}
    for release in releases:
        kind = replace(release, steps=1)
        steps[kind] = steps.get(kind, 0) + release.steps
    return tuple(replace(kind, steps=count) for kind, count in steps.items())
