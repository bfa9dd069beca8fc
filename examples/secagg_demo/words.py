"""The demonstration as text for a terminal: one paragraph a step, in words that need no cryptographer.

Every number comes from `Facts`; this module only chooses words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from secagg_demo.lies import Refusal
from secagg_demo.story import (
    NOISE_MEAN,
    NOISE_SPREAD,
    SHOWN_NUMBER,
    VICTIM,
    Facts,
    Lie,
    Noise,
    Sent,
    Sum,
)

BAR = 24
ROWS = 16


def story_lines(facts: Facts) -> Iterator[str]:
    """Yield the whole story, line by line, with rich markup."""
    yield from _opening(facts)
    yield from _step(
        1, "Keys: every clinic sends a fresh public key, signed with the key that the others have pinned"
    )
    yield from _table(facts.keys, "public key begins with")
    yield from _step(2, "Upload: every clinic trains, hides its update under masks and sends it")
    yield from _table(facts.uploads, f"masked numbers {SHOWN_NUMBER} and {SHOWN_NUMBER + 1}")
    victim = facts.clinics[VICTIM - 1]
    yield f"  Without masks those 8 bytes of {victim} would have been {facts.before_masking}."
    yield from _step(3, f"What the aggregator holds of {victim}: bytes that look like noise")
    yield from histogram_lines(facts.without_masks, facts.masked)
    yield from noise_lines(facts)
    yield from _step(
        4, "Opening: every clinic sends shares of the masks, so that the sum, and only the sum, opens"
    )
    yield from _table(facts.answers, "last share begins with")
    yield from _sum_lines(facts.everybody, facts)
    yield from _step(5, f"Drop-out: {facts.lost_clinic} vanishes before its upload arrives")
    yield from _sum_lines(facts.lost_before_upload, facts)
    yield "  The others handed over their masks with the lost clinic, and voted on who is left, signed."
    yield from _step(6, f"Drop-out: {facts.lost_clinic} vanishes right after its upload")
    yield from _sum_lines(facts.lost_after_upload, facts)
    yield f"  Its update is in the sum: any {facts.threshold} clinics can open it."
    for number, lie in enumerate(facts.lies, start=7):
        yield from _step(number, f"A lie: {lie.title[0].lower()}{lie.title[1:]}")
        yield f"  {explanation(lie, facts)}"
        yield from _refusals(lie.refusals)


def noise_lines(facts: Facts) -> Iterator[str]:
    """Yield what the chi-squared figures say."""
    yield (
        f"  chi-squared over the 256 byte values: {facts.without_masks.chi_squared:,.0f} without masks, "
        f"{facts.masked.chi_squared:.0f} as sent."
    )
    yield (
        f"  Pure noise gives {NOISE_MEAN} give or take {NOISE_SPREAD:.0f}; "
        f"as many fresh random bytes gave {facts.fresh_noise.chi_squared:.0f} just now."
    )


def sum_sentence(found: Sum) -> str:
    """Return what the aggregator recovered, in one sentence."""
    return (
        f"a sum over {len(found.contributors)} clinics and {found.images[0]} images "
        f"(mean loss {found.mean_loss[0]:.4f}), opened with the shares of {found.answers_used} clinics"
    )


def error_sentence(found: Sum) -> str:
    """Return how far the sum is from the plain one."""
    return (
        f"largest error of a number of the mean update: {found.greatest_error:.1e}; proven bound "
        f"{found.proven_bound:.1e}; largest number: {found.greatest_change:.2f}"
    )


def explanation(lie: Lie, facts: Facts) -> str:
    """Return what the aggregator is after with a lie, in plain words."""
    victim = facts.clinics[VICTIM - 1]
    return {
        "both shares": (
            f"It has the shares of everybody's own mask. With those of the masks between {victim} and the others, "
            f"it could read {victim}'s update. So it says that {victim} had vanished."
        ),
        "two sets": (
            f"One half hears that {facts.clinics[-1]} vanished, the other half that {facts.lost_clinic} did; "
            f"{facts.accomplice} is on its side and signs both. The difference of two sums would be one clinic."
        ),
        "two models": (
            f"{victim} trains on a model of its own, so that its part would stand out in the sum. First the "
            "digest does not fit the model; then it does, for that clinic alone."
        ),
        "another sum": (
            "Every clinic moves its own copy of the model by the sum. If the aggregator could choose the sum, it "
            "could choose the model. So each sum carries a tag that only the clinics together can make, and one "
            "unit in one of the numbers is enough to break it."
        ),
    }[lie.kind]


def summarised(refusals: Sequence[Refusal]) -> list[tuple[str, Refusal]]:
    """Return refusals with the clinics that said the same to the same in one line."""
    together: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in refusals:
        together.setdefault((refusal.asked, refusal.check), []).append(refusal)
    return [(", ".join(refusal.clinic for refusal in same), same[0]) for same in together.values()]


def histogram_lines(left: Noise, right: Noise) -> Iterator[str]:
    """Yield two histograms of byte values side by side, 16 values a row."""
    columns = [_rows(noise) for noise in (left, right)]
    most = max(max(rows) for rows in columns)
    yield f"  {'byte value':<12}{'without masks':<{BAR + 8}}as sent"
    for row, (before, sent) in enumerate(zip(*columns, strict=True)):
        bars = [f"{_bar(count, most):<{BAR}} {count:>5}" for count in (before, sent)]
        yield f"  {16 * row:02x} to {16 * row + 15:02x}    {bars[0]}  {bars[1]}"


def _opening(facts: Facts) -> Iterator[str]:
    yield (
        f"[bold]{len(facts.clinics)} clinics learn to read digits[/]: {', '.join(map(str, facts.images))} images, "
        f"a model of {facts.parameters} numbers."
    )
    yield "What is promised: " + facts.guarantee + "."


def _step(number: int, title: str) -> Iterator[str]:
    yield ""
    yield f"[bold]{number}. {title}[/]"


def _table(sent: Sequence[Sent], what: str) -> Iterator[str]:
    for line in sent:
        yield f"  {line.clinic}  {line.bytes:>6} bytes   {what}  {line.some_bytes}"


def _sum_lines(found: Sum, facts: Facts) -> Iterator[str]:
    yield f"  The aggregator recovers {sum_sentence(found)}."
    yield f"  There the {error_sentence(found)}."
    missing = [clinic for clinic in facts.clinics if clinic not in found.contributors]
    if missing:
        yield f"  Not in the sum: {', '.join(missing)}."


def _refusals(refusals: Sequence[Refusal]) -> Iterator[str]:
    for clinics, refusal in summarised(refusals):
        yield f"  Asked to {refusal.asked}:"
        yield f"    [green]refused[/] by {clinics}; check [bold]{refusal.check}[/]: {refusal.words}"


def _rows(noise: Noise) -> list[int]:
    width = len(noise.counts) // ROWS
    return [sum(noise.counts[start : start + width]) for start in range(0, len(noise.counts), width)]


def _bar(count: int, most: int) -> str:
    return "#" * max(round(BAR * count / most), 1 if count else 0)
