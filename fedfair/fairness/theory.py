"""The paper's theory of FedSRCVaR, as numbers: constants, learning rates, bounds and equivalences.

Plain floats in, plain floats out; nothing here is needed to train. It tells a plan's author what to expect,
and tests what to check. Symbols: rho = worst_group_size, eps = tradeoff, G and beta = Lipschitz and
smoothness constant of the loss in theta, gamma = smoothing parameter, M = diameter of the models, B = bound
of the loss, K = collaborators, tau = local steps, T = rounds. Source: FedSRCVaR paper, section 5 and its
appendices A and C. Its lemmas are called 5.2 (properties of f and f~), 5.3 (convergence of FedSRCVaR) and 5.4
(excess risk) here; where a version counts assumptions and lemmas together they are 5.5 to 5.7.

Four statements of the paper are corrected here. Lemma 5.2(3) bounds only the theta block of the gradient
(`model_smoothness`); the pair (theta, c) needs `joint_smoothness`. Appendix A's equivalence with BPF holds
exactly, without its additional term (`rcvar_of_bpf`). Assumption 5.1 means convex in theta, not in z. Lemma 5.4
divides stability and excess risk by the batch size, which is false: `excess_risk` has a counterexample,
`uniform_stability` the proof of what is true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedfair.errors import PlanError


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The objective's two parameters and what Assumptions 5.1 and 5.2 grant about the loss.

    Attributes:
        worst_group_size: rho, in (0, 1].
        tradeoff: epsilon, in [0, 1].
        lipschitz: G, bound of the norm of the loss's gradient in theta, not negative.
        smoothness: beta, Lipschitz constant of that gradient, not negative.
        diameter: M, the largest distance between two models, not negative.
        loss_bound: B, the largest loss and threshold; the paper's is 1.
    """

    worst_group_size: float
    tradeoff: float
    lipschitz: float
    smoothness: float
    diameter: float = 1.0
    loss_bound: float = 1.0

    def __post_init__(self) -> None:
        _require_objective(self.worst_group_size, self.tradeoff)
        for name in ("lipschitz", "smoothness", "diameter", "loss_bound"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise PlanError(f"{name} is {getattr(self, name)}, outside [0, inf)")

    @property
    def squared_distance(self) -> float:
        """M^2 + B^2, the squared diameter of the pairs (theta, c)."""
        return self.diameter**2 + self.loss_bound**2


def lipschitz_constant(given: Assumptions) -> float:
    """Return G_{rho,eps}, a bound of the gradient of f and of f~ in (theta, c). Lemma 5.2(2).

    max( sqrt(G^2 (1 - eps + eps rho)^2 + (1 - eps)^2 (rho - 1)^2) / rho,  sqrt(G^2 eps^2 + (1 - eps)^2) ):
    the largest norm with sigma = 1 and with sigma = 0. No smaller number will do, whatever the smoothed plus
    function.
    """
    rho, eps = given.worst_group_size, given.tradeoff
    above = math.hypot(given.lipschitz * (1.0 - eps + eps * rho), (1.0 - eps) * (rho - 1.0)) / rho
    below = math.hypot(given.lipschitz * eps, 1.0 - eps)
    return max(above, below)


def model_smoothness(given: Assumptions, gamma: float) -> float:
    """Return (1 - eps)/rho (beta + 2 G^2/gamma) + eps beta, as Lemma 5.2(3) prints it.

    It bounds the curvature in theta with c held fixed. The lemma claims it for the pair (theta, c), where it
    is too small: its proof looks at the first block of the gradient only, and there drops the part that moves
    with c.
    """
    return _smoothness(given, gamma, given.lipschitz**2)


def joint_smoothness(given: Assumptions, gamma: float) -> float:
    """Return (1 - eps)/rho (beta + 2 (G^2 + 1)/gamma) + eps beta, which holds for the pair (theta, c).

    The Hessian of f~ is (1 - eps)/rho [s'' v v^T + s' H] + eps H with v = (grad l, -1), H = the Hessian of l
    bordered by zeros, s'' <= 2/gamma, 0 <= s' <= 1 and |v|^2 <= G^2 + 1.
    """
    return _smoothness(given, gamma, given.lipschitz**2 + 1.0)


def smoothing_bias(worst_group_size: float, tradeoff: float, gap: float) -> float:
    """Return (1 - eps) gap / rho, so that f <= f~ <= f + bias: Lemma 5.2(4) with a function's own gap.

    Args:
        worst_group_size: rho, in (0, 1].
        tradeoff: epsilon, in [0, 1].
        gap: largest distance from the plus function: `SmoothedPlus.gap`; the paper takes gamma for all of
            them.
    """
    _require_objective(worst_group_size, tradeoff)
    return (1.0 - tradeoff) * gap / worst_group_size


@dataclass(frozen=True, slots=True)
class Convergence:
    """The promise of Lemma 5.3.

    Attributes:
        learning_rate: the step size it prescribes for theta and c.
        bound: of the expected optimisation error of the average of the broadcast pairs, smoothing bias
            included.
    """

    learning_rate: float
    bound: float


def convergence(
    given: Assumptions,
    *,
    gamma: float,
    smoothness: float,
    deviation: float,
    heterogeneity: float,
    collaborators: int,
    local_steps: int,
    rounds: int,
    batch_size: int = 1,
) -> Convergence:
    """Return the learning rate and the bound of Lemma 5.3 (after Theorem 1 of Wang et al. 2021).

    The paper states it twice. The main text has no batch size: take batch_size = 1 and, for `deviation`, that
    of a batch's gradient. Appendix C divides the variance by the batch size b: take that of one record's
    gradient. (Its text calls it the batch's, which would count b twice.) The main text's learning rate prints
    M^2 + 1^2, which is M^2 + B^2 at the paper's B = 1; the appendix prints M^2 + B^2 everywhere, as here.

    Args:
        given: the objective and the loss.
        gamma: the smoothing parameter, for the bias (1 - eps) gamma / rho.
        smoothness: of f~: `joint_smoothness`; with `model_smoothness` the numbers are the paper's own.
        deviation: sigma, standard deviation of a stochastic gradient (Assumption 5.3), >= 0.
        heterogeneity: mu, largest distance between a collaborator's and the global gradient (Assumption 5.4),
            >= 0.
        collaborators: K, at least 1.
        local_steps: tau, at least 1.
        rounds: T, at least 1.
        batch_size: b, at least 1.

    Raises:
        PlanError: a count is below 1, a deviation is negative, or the smoothness is not positive.
    """
    _require_counts(collaborators=collaborators, local_steps=local_steps, rounds=rounds, batch_size=batch_size)
    if deviation < 0.0 or heterogeneity < 0.0 or not smoothness > 0.0:
        raise PlanError(
            f"deviation {deviation} and heterogeneity {heterogeneity} must not be negative, and the smoothness "
            f"{smoothness} must be positive"
        )
    distance, variance = given.squared_distance, deviation**2 / batch_size
    cube = distance / (smoothness * rounds)
    learning_rate = min(
        1.0 / (4.0 * smoothness),
        _over(math.sqrt(collaborators * distance / (local_steps * rounds)), math.sqrt(variance)),
        _over(math.cbrt(cube / local_steps**2), math.cbrt(variance)),
        _over(math.cbrt(cube) / local_steps, math.cbrt(heterogeneity**2)),
    )
    drift = 5.0 * math.cbrt(variance / local_steps) + 19.0 * math.cbrt(heterogeneity**2)
    bound = (
        2.0 * smoothness * distance / (local_steps * rounds)
        + 2.0 * math.sqrt(variance * distance / (collaborators * local_steps * rounds))
        + math.cbrt(smoothness * distance**2 / rounds**2) * drift
        + smoothing_bias(given.worst_group_size, given.tradeoff, gamma)
    )
    return Convergence(learning_rate, bound)


@dataclass(frozen=True, slots=True)
class ExcessRisk:
    """The parameters and the promise of the corrected Lemma 5.4.

    Attributes:
        learning_rate: the step size eta, for theta and c.
        gamma: the smallest smoothing parameter for which eta is at most 2 / `joint_smoothness`; 0 where the
            tradeoff is 1, so that nothing is smoothed, and infinite where no gamma suffices.
        rounds_suffice: whether there is such a gamma. If not, more rounds make eta small enough.
        bound: of the expected excess risk, the bias (1 - eps) gamma / rho included; infinite without a gamma.
    """

    learning_rate: float
    gamma: float
    rounds_suffice: bool
    bound: float


def excess_risk(given: Assumptions, *, records: int, rounds: int) -> ExcessRisk:
    """Return learning rate, gamma, round condition and bound of Lemma 5.4 as it should be (one local step).

    eta = D sqrt(n / (T (n + 2T))) / G_{rho,eps} and bound = G_{rho,eps} D sqrt(2/n + 1/T) + (1 - eps) gamma / rho,
    with D^2 = M^2 + B^2, whatever the batch sizes. Proof, after Hardt, Recht and Singer 2016, Proposition 5.4: the
    mean of the broadcast pairs is within D^2 / (2 eta T) + eta G^2 / 2 of the empirical optimum, because a batch's
    gradient is no longer than G. Its stability, by `uniform_stability`, is below eta T G^2 / n. The eta above
    minimises the sum of the two. From f~ to f the bias is added.

    The paper divides the bound by the root of the total batch size b. That is false: let the loss be 1/2 + z theta
    with |theta| <= 1/2, and let z be 1 or -1 with equal chances. Every model then has the risk 1/2, and the best
    empirical risk is 1/2 - |mean of z| / 2. So the excess risk of any algorithm is E|mean of z| / 2, about
    sqrt(1 / (2 pi n)). At b = n = T = 1000 and tradeoff 1 this is 0.0126, and the paper's bound is 0.0024.

    The paper also takes a gamma that keeps eta below 2 / `model_smoothness`. Steps on the pair (theta, c) need
    `joint_smoothness`.

    Args:
        given: the objective and the loss.
        records: n, records of all collaborators.
        rounds: T.

    Raises:
        PlanError: a count is below 1, or the Lipschitz constant is 0, for which the lemma says nothing.
    """
    _require_counts(records=records, rounds=rounds)
    rho, eps = given.worst_group_size, given.tradeoff
    steepest, distance = lipschitz_constant(given), given.squared_distance
    if steepest == 0.0:
        raise PlanError("a loss whose gradient is 0 everywhere has no learning rate")
    learning_rate = math.sqrt(records * distance / (rounds * (records + 2 * rounds))) / steepest
    # Of the smoothness 2 / eta, this is what the loss's own curvature leaves for that of the smoothing.
    left = 2.0 / learning_rate - ((1.0 - eps) / rho + eps) * given.smoothness
    if left <= 0.0:
        return ExcessRisk(learning_rate, math.inf, False, math.inf)
    gamma = 2.0 * (1.0 - eps) / rho * (given.lipschitz**2 + 1.0) / left
    bound = steepest * math.sqrt(distance * (2.0 / records + 1.0 / rounds))
    return ExcessRisk(learning_rate, gamma, True, bound + smoothing_bias(rho, eps, gamma))


def uniform_stability(
    given: Assumptions,
    *,
    learning_rate: float,
    records: int,
    rounds: int,
    output: Literal["average", "last"] = "average",
) -> float:
    """Return how much one record changes the expected f or f~ of any record: at most 2 eta G_{rho,eps}^2 sum / n.

    The sum is T for the last pair, and (T - 1) / 2 for the mean of the T broadcast pairs. It holds for one local
    step with eta at most 2 / `joint_smoothness`, whatever the batch sizes. Proof, after Hardt, Recht and Singer
    2016, Theorems 3.8 and 4.7: couple the runs on two data sets that differ in record i of site k, by drawing the
    same batches. The site's batch of b of its m records holds i with probability b / m. Without i both runs take
    the same step, which brings no two pairs apart (convex and smooth, eta at most 2 / smoothness; projections do
    not either). With i, the step on all other records does not, and the two gradients of i add at most
    2 eta G w / b, where w = m / n is the site's weight. So the expected distance grows by at most

        (b / m) (2 eta G w / b) = 2 eta G / n

    per round: a large batch holds i more often by the factor by which i counts less in it. After t rounds it is
    2 eta G t / n; the mean over t = 0 to T - 1 is that at (T - 1) / 2. f and f~ change by at most G times the
    distance. Under `weights: uniform` or `batch`, read 1 / n as the largest w / m of any site.

    The paper has eta T G^2 / (n b) for the mean of the pairs, b the total batch size; a linear loss exceeds it.

    Args:
        given: the objective and the loss.
        learning_rate: eta, for theta and c, above 0.
        records: n, records of all collaborators.
        rounds: T.
        output: which pair is the result: the mean of the broadcast pairs, or the last pair.

    Raises:
        PlanError: a count is below 1, or the learning rate is not positive and finite.
    """
    _require_counts(records=records, rounds=rounds)
    if not 0.0 < learning_rate < math.inf:
        raise PlanError(f"learning_rate is {learning_rate}; it must be positive and finite")
    steps = rounds if output == "last" else 0.5 * (rounds - 1)
    return 2.0 * steps * lipschitz_constant(given) ** 2 * learning_rate / records


def rcvar_of_bpf(group_size: float, floor: float) -> tuple[float, float]:
    """Return the (worst_group_size, tradeoff) at which RCVaR equals BPF, for every model and exactly.

    BPF gives every record a weight in [eps/rho, 1/rho] of mean 1 and takes the worst: eps/rho for all,
    and the rest on the share (rho - eps)/(1 - eps) with the largest losses. So rho' = (rho - eps)/(1 - eps),
    eps' = eps/rho; the "additional term" of Appendix A belongs to eps' and is no error.

    Args:
        group_size: BPF's rho, in (floor, 1].
        floor: BPF's epsilon, in [0, group_size).

    Raises:
        PlanError: not 0 <= floor < group_size <= 1.
    """
    if not 0.0 <= floor < group_size <= 1.0:
        raise PlanError(f"BPF needs 0 <= epsilon < rho <= 1, not epsilon = {floor} and rho = {group_size}")
    return (group_size - floor) / (1.0 - floor), floor / group_size


def bpf_of_rcvar(worst_group_size: float, tradeoff: float) -> tuple[float, float]:
    """Return BPF's (rho, epsilon) that equal an RCVaR: the inverse of `rcvar_of_bpf`.

    rho = rho' / (1 - eps' + eps' rho'),  eps = eps' rho.

    Args:
        worst_group_size: rho', in (0, 1].
        tradeoff: eps', in [0, 1); at 1 RCVaR is the mean, which no epsilon < rho gives.

    Raises:
        PlanError: an argument is outside its range.
    """
    _require_objective(worst_group_size, tradeoff)
    if tradeoff == 1.0:
        raise PlanError(
            "at tradeoff 1 the objective is the mean, which BPF reaches only in the limit epsilon = rho"
        )
    group_size = worst_group_size / (1.0 - tradeoff + tradeoff * worst_group_size)
    return group_size, tradeoff * group_size


def _smoothness(given: Assumptions, gamma: float, squared_gradient: float) -> float:
    if not gamma > 0.0:
        raise PlanError(f"gamma is {gamma}; it must be a positive number")
    rho, eps = given.worst_group_size, given.tradeoff
    curvature = given.smoothness + 2.0 / gamma * squared_gradient
    return (1.0 - eps) / rho * curvature + eps * given.smoothness


def _require_objective(worst_group_size: float, tradeoff: float) -> None:
    if not 0.0 < worst_group_size <= 1.0:
        raise PlanError(f"worst_group_size is {worst_group_size}, outside (0, 1]")
    if not 0.0 <= tradeoff <= 1.0:
        raise PlanError(f"tradeoff is {tradeoff}, outside [0, 1]")


def _require_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise PlanError(f"{name} is {count}, but must be at least 1")


def _over(numerator: float, denominator: float) -> float:
    """Return the quotient; infinity, which limits no learning rate, where the denominator is 0."""
    return numerator / denominator if denominator > 0.0 else math.inf
