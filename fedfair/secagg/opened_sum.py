"""Decodes an opened sum: the one decoding that the aggregator and every site carry out.

Takes the words of a sum without its masks, refuses what no contributions of honest sites add up to, and returns
numbers. A site can send any element of the ring, and masks hide which; only the sum can be looked at. Whether the
words are the true sum is `sum_check`'s matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.secagg.checks import Check, require
from fedfair.secagg.fixedpoint import (
    BodyCode,
    check_body_sum,
    check_header_sum,
    check_tag_limbs,
    decode_body,
    decode_header,
)
from fedfair.secagg.params import SessionTerms
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.shape import COUNTED, SumShape


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """The one thing that is learnt in a round.

    Attributes:
        purpose: why it was summed.
        survivors: whose contributions, or abstentions, are in it.
        contributors: how many did not abstain.
        weight: sum of the weights.
        header: float64 (header_length,): sums of the header values.
        body: (body_length,): sum of weight * change.
        clipped: how many values were clipped, over all sites.
        histogram: how many sites' largest magnitude fell into each power of two; () without a body.
        errors: for each group of the body, the bound on the error of a coordinate of `body`.
        replaced: how many values were replaced because they were no numbers that can be summed, over all sites.
        replacing: how many sites had such values.
    """

    purpose: str
    survivors: tuple[int, ...]
    contributors: int
    weight: int
    header: NDArray[np.float64]
    body: NDArray[np.floating]
    clipped: int
    histogram: tuple[int, ...]
    errors: tuple[float, ...]
    replaced: int = 0
    replacing: int = 0


@dataclass(frozen=True, slots=True)
class RoundLayout:
    """How the words of one round's sum are to be read.

    Attributes:
        start: the round start.
        terms: of the session.
        shape: of every contribution.
        body_dtype: float32 or float64: width of the decoded body.
    """

    start: RoundStart
    terms: SessionTerms
    shape: SumShape
    body_dtype: np.dtype[np.floating]


def body_code(terms: SessionTerms, start: RoundStart, shape: SumShape) -> BodyCode:
    """Return how body values are encoded in a round."""
    members = len(start.cohort)
    return BodyCode(terms.ring_bits, members, terms.greatest_weight, shape.groups, start.clips, shape.unit)


def decode_sum(
    header: NDArray[np.uint64], body: NDArray[np.uint32], survivors: tuple[int, ...], layout: RoundLayout
) -> OpenedSum:
    """Return what a sum says, or refuse one that no honest contributions have.

    Args:
        header: (masked_header_length,), without masks.
        body: (body_length,), without masks; only the low ring_bits count. With float32 its memory becomes the
            decoded body.
        survivors: whose contributions are in it, increasing.
        layout: how to read it.

    Raises:
        SecaggError: PLAUSIBILITY.
    """
    start, shape, terms = layout.start, layout.shape, layout.terms
    cohort, runs = len(start.cohort), shape.header_runs(terms.greatest_weight)
    values = decode_header(header, runs, cohort)
    weight, contributors = int(values[0]), int(values[1])
    require(
        0 < contributors <= len(survivors) and weight >= contributors,
        Check.PLAUSIBILITY,
        f"{contributors} contributors of {len(survivors)} survivors with a total weight of {weight}",
        "every member abstained, or a contribution was malformed",
    )
    # Whoever abstains adds a tag like every member, and nothing else.
    check_tag_limbs(header[shape.tag_words], len(survivors))
    check_header_sum(header, runs, cohort, contributors, but=shape.tag_words)
    replaced, replacing = int(values[2]), int(values[3])
    require(
        replaced >= replacing and (replaced == 0) == (replacing == 0),
        Check.PLAUSIBILITY,
        f"{replaced} replaced values of {replacing} sites",
        "a site that replaces values counts one at least, and itself; a contribution was malformed",
    )
    code = body_code(terms, start, shape)
    check_body_sum(body, code, weight, contributors)
    counted = values[COUNTED + 1 : shape.tag_words.start] if shape.body_length else ()
    histogram = tuple(int(count) for count in counted)
    require(
        not histogram or sum(histogram) == contributors,
        Check.PLAUSIBILITY,
        f"the sizes of {sum(histogram)} changes of {contributors} contributors",
        "a contribution was malformed",
    )
    return OpenedSum(
        start.purpose,
        survivors,
        contributors,
        weight,
        values[shape.own_length :],
        decode_body(body, code, layout.body_dtype),
        int(values[COUNTED]) if shape.body_length else 0,
        histogram,
        tuple(code.sum_error(clip, contributors) for clip in code.clips),
        replaced=replaced,
        replacing=replacing,
    )
