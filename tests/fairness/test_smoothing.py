import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.fairness.smoothing import NAMES, SmoothedPlus, smoothing
from tests.oracles.smoothed_plus import verify_smoothed_plus

ROWS = ("softplus", "zang", "quadratic", "chks", "gaussian")
GAMMAS = (1e-4, 0.05, 30.0)
WIDTHS = (torch.float32, torch.float64)

rows = pytest.mark.parametrize("name", ROWS)
gammas = pytest.mark.parametrize("gamma", GAMMAS)
widths = pytest.mark.parametrize("dtype", WIDTHS, ids=str)


def points(gamma: float, dtype: torch.dtype) -> torch.Tensor:
    """Return points close to 0, around the joints of the piecewise functions, and far outside."""
    near = torch.linspace(-6, 6, 2401, dtype=torch.float64) * gamma
    far = torch.logspace(0.5, 12, 40, dtype=torch.float64) * gamma
    joints = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0], dtype=torch.float64) * gamma
    return torch.cat([-far, near, joints, far]).to(dtype)


def exact(name: str, m: float, gamma: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Return value and derivative as the table of the design prints them, in 60 digits."""
    m, g = mpmath.mpf(m), mpmath.mpf(gamma)
    root = mpmath.sqrt(m * m + 4 * g * g)
    return {
        "softplus": lambda: (g * mpmath.log1p(mpmath.exp(m / g)), 1 / (1 + mpmath.exp(-m / g))),
        "zang": lambda: (max(m, 0) if abs(m) > g / 2 else (m + g / 2) ** 2 / (2 * g), min(max(m / g + 0.5, 0), 1)),
        "quadratic": lambda: (
            max(m, 0) if abs(m) > g else (m + g) ** 2 / (4 * g),
            min(max(m / (2 * g) + 0.5, 0), 1),
        ),
        "chks": lambda: ((m + root) / 2, (1 + m / root) / 2),
        "gaussian": lambda: (m * mpmath.ncdf(m / g) + g * mpmath.npdf(m / g), mpmath.ncdf(m / g)),
    }[name]()


@rows
@gammas
@widths
def test_the_value_is_above_plus_by_at_most_the_gap(name: str, gamma: float, dtype: torch.dtype) -> None:
    s, m = smoothing(name, gamma), points(gamma, dtype)
    plus, value = m.clamp(min=0), s.value(m)
    assert (value >= plus).all()  # without any tolerance
    # One rounding of the sum; a few in the excess itself.
    unit = torch.finfo(dtype).eps
    assert (value - plus <= s.gap * (1 + 4 * unit) + plus * unit).all()
    assert s.gap <= gamma


@rows
@gammas
@widths
def test_value_and_derivative_agree_in_sixty_digits(name: str, gamma: float, dtype: torch.dtype) -> None:
    s, m, unit = smoothing(name, gamma), points(gamma, dtype)[::14], torch.finfo(dtype).eps
    with mpmath.workdps(60):
        pairs = [exact(name, float(x), gamma) for x in m]
    values, slopes = s.value(m).double(), s.derivative(m).double()
    # m / gamma is rounded once, which moves a value by at most |m| eps; the rest are errors of a few eps of the
    # value and of the excess. The excess is at most gamma.
    for x, (value, slope), got_value, got_slope in zip(m, pairs, values, slopes, strict=True):
        assert abs(got_value.item() - float(value)) <= 4 * unit * (gamma + abs(float(value)))
        # A relative error eps of t = m / gamma moves s' by |t| s'' eps <= eps, whatever t.
        assert abs(got_slope.item() - float(slope)) <= 4 * unit, f"at {x}"


@rows
@widths
def test_far_below_zero_the_value_keeps_its_relative_precision(name: str, dtype: torch.dtype) -> None:
    s, m = smoothing(name, 1.0), torch.tensor([-8.0, -3.0, -0.4], dtype=dtype)
    with mpmath.workdps(60):
        expected = torch.tensor([float(exact(name, float(x), 1.0)[0]) for x in m], dtype=torch.float64)
    # The worst is the Gaussian, whose two terms cancel down to 1 / t^2 of themselves: 8^2 eps and a few more.
    assert torch.allclose(s.value(m).double(), expected, rtol=400 * torch.finfo(dtype).eps, atol=0)


@rows
@gammas
def test_it_is_convex_and_as_smooth_as_declared(name: str, gamma: float) -> None:
    s = smoothing(name, gamma)
    step = gamma / 512
    m = torch.arange(-4096, 4097, dtype=torch.float64) * step
    curvature = s.value(m).diff().diff() / step**2
    # Values up to 8 gamma, so second differences are wrong by at most 4 * 8 gamma eps / step^2 = 2e-9 / gamma.
    assert (curvature >= -4e-9 / gamma).all()
    assert (curvature <= s.smoothness + 4e-9 / gamma).all()
    assert curvature.max() >= 0.99 * s.smoothness  # and the declaration is not loose
    assert s.smoothness <= 2 / gamma


@rows
@gammas
@widths
def test_the_derivative_is_autograds_and_in_the_unit_interval(name: str, gamma: float, dtype: torch.dtype) -> None:
    s, m = smoothing(name, gamma), points(gamma, dtype).requires_grad_()
    (gradient,) = torch.autograd.grad(s.value(m).sum(), m)
    slope = s.derivative(m.detach())
    assert ((slope >= 0) & (slope <= 1)).all()
    # Both are sums of a few terms of size up to 1.
    assert (gradient - slope).abs().max() <= 8 * torch.finfo(dtype).eps
    assert (slope.diff()[m.detach().diff() > 0] >= -torch.finfo(dtype).eps).all()


@rows
def test_gradcheck_agrees(name: str) -> None:
    # Points that are no joints of the piecewise functions, where the second derivative jumps.
    m = torch.tensor([-3.1, -0.93, -0.31, 0.07, 0.42, 0.88, 2.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(smoothing(name, 1.0).value, (m,))


@rows
@widths
@settings(deadline=None, max_examples=30)
@given(ratio=st.floats(-1e30, 1e30), gamma=st.floats(1e-6, 1e6))
def test_nothing_overflows_or_turns_into_nan(name: str, dtype: torch.dtype, ratio: float, gamma: float) -> None:
    s, m = smoothing(name, gamma), torch.tensor([ratio * gamma], dtype=dtype)
    if not torch.isfinite(m).all():
        return
    assert torch.isfinite(s.value(m)).all()
    assert 0.0 <= s.derivative(m).item() <= 1.0


@pytest.mark.parametrize("name", ["silu", "SiLU", "gelu", "relu", "", "soft_relu"])
def test_another_name_is_refused_with_the_choices(name: str) -> None:
    with pytest.raises(PlanError) as caught:
        smoothing(name, 0.05)
    assert all(choice in caught.value.diagnostics() for choice in NAMES)


@pytest.mark.parametrize("gamma", [0.0, -0.05, math.nan, math.inf, 1e-320])
def test_a_gamma_that_is_not_a_positive_number_is_refused(gamma: float) -> None:
    with pytest.raises(PlanError, match="gamma is"):
        smoothing("softplus", gamma)


@rows
@pytest.mark.parametrize("gamma", [1e-3, 0.05, 10.0])
def test_every_row_passes_the_verification(name: str, gamma: float) -> None:
    verify_smoothed_plus(smoothing(name, gamma).value, gamma)


def bump(m: torch.Tensor) -> torch.Tensor:
    """Return softplus with a dent that keeps it within the gap but makes it bend downwards."""
    return torch.nn.functional.softplus(m, threshold=40) + 0.05 * torch.exp(-200 * (m - 2) ** 2)


@pytest.mark.parametrize(
    ("candidate", "property_"),
    [
        (torch.nn.functional.silu, "value above"),
        (torch.nn.functional.gelu, "value above"),
        (lambda m: torch.nn.functional.silu(m) + 0.3, "slope"),  # above (m)+ almost everywhere, but falling
        (lambda m: smoothing("chks", 1.5).value(m), "value above"),  # gap 1.5 for a gamma of 1
        (lambda m: m.clamp(min=0), "second derivative"),  # a kink
        (lambda m: smoothing("zang", 0.4).value(m), "second derivative"),  # 1/0.4 > 2
        (bump, "slope|second derivative"),
        (lambda m: m.abs(), "value above"),
        (lambda m: torch.full_like(m, math.nan), "value above"),
        (lambda m: smoothing("softplus", 1.0).value(m) + 1e-9 * m * m, "value above"),  # leaves only far out
    ],
)
def test_another_function_is_refused(candidate: Callable[[torch.Tensor], torch.Tensor], property_: str) -> None:
    with pytest.raises(PlanError, match=property_):
        verify_smoothed_plus(candidate, 1.0)


def test_gaps_and_names_are_those_of_the_table_and_silu_is_refused() -> None:
    zero = torch.zeros(1, dtype=torch.float64)
    expected = {"softplus": math.log(2), "zang": 1 / 8, "quadratic": 1 / 4, "chks": 1, "gaussian": 0.3989422804}
    for name, gap in expected.items():
        s = smoothing(name, 0.05)
        assert s.value(zero).item() == pytest.approx(0.05 * gap, rel=1e-9)
        assert s.gap == pytest.approx(0.05 * gap, rel=1e-9)
        assert s.derivative(zero).item() == 0.5
    assert set(NAMES) == {*ROWS, "soft-relu"}
    assert smoothing("soft-relu", 0.05) == smoothing("softplus", 0.05) == SmoothedPlus("softplus", 0.05)
    m = torch.linspace(-1, 1, 101, dtype=torch.float64)
    ours, torchs = smoothing("soft-relu", 0.05).value(m), torch.nn.functional.softplus(m, beta=20.0, threshold=40)
    # Values up to 1, a handful of float64 operations each.
    assert (ours - torchs).abs().max() < 1e-15
    for gamma in GAMMAS:
        with pytest.raises(PlanError, match="not a smoothed plus function"):
            verify_smoothed_plus(lambda m, g=gamma: m * torch.sigmoid(m / g), gamma)
