import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedfair.errors import LocalProtocolError
from fedfair.training.flat_model import FlatModel, layout_of


class Tied(nn.Module):
    """Encodes and decodes with one matrix, registered under two names, and has a frozen offset."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(3, 3, bias=False)
        self.decode = nn.Linear(3, 3, bias=False)
        self.decode.weight = self.encode.weight
        self.offset = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, features: Tensor) -> Tensor:
        hidden: Tensor = torch.tanh(self.encode(features))
        decoded: Tensor = self.decode(hidden) + self.offset
        return decoded


def deep(normed: bool = True) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        norm = nn.BatchNorm1d(5) if normed else nn.Identity()
        return nn.Sequential(nn.Linear(3, 5), norm, nn.ReLU(), nn.Linear(5, 2))


def batch() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(2)
    return torch.randn(8, 3, generator=source), torch.randint(2, (8,), generator=source)


def train(model: nn.Module) -> None:
    features, labels = batch()
    nn.functional.cross_entropy(model(features), labels).backward()


def test_the_flat_step_is_that_of_an_ordinary_optimiser() -> None:
    plain, flat = deep(), FlatModel(deep(), torch.float32)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        flat.zero_gradient()
        train(plain)
        train(flat)
        optimiser.step()
        flat.step(0.1)
    expected = plain.state_dict()
    for name, tensor in flat.layout.unflatten(flat.vector()).items():
        # The same operations on the same values; only the memory lies elsewhere.
        assert np.array_equal(tensor, expected[name].numpy()), name


def test_running_statistics_are_entries_that_move_by_averaging_and_not_by_the_step() -> None:
    flat = FlatModel(deep(), torch.float32)
    trainable = {entry.name: entry.trainable for entry in flat.layout.entries}
    assert trainable == {
        "0.bias": True, "0.weight": True, "1.bias": True, "1.running_mean": False, "1.running_var": False,
        "1.weight": True, "3.bias": True, "3.weight": True,
    }  # fmt: skip
    before = flat.layout.unflatten(flat.vector())
    train(flat)
    after_forward = flat.layout.unflatten(flat.vector())
    assert not np.array_equal(before["1.running_mean"], after_forward["1.running_mean"])
    flat.step(0.5)
    after_step = flat.layout.unflatten(flat.vector())
    assert np.array_equal(after_step["1.running_mean"], after_forward["1.running_mean"])
    assert not np.array_equal(after_step["3.weight"], after_forward["3.weight"])


def test_what_is_not_in_the_vector_starts_afresh_with_every_broadcast() -> None:
    # Without a momentum the running mean is a cumulative one, and the batches it counts are an integer buffer.
    norm = nn.BatchNorm1d(3, momentum=None)
    norm.register_buffer("seen", torch.zeros(3), persistent=False)
    model = FlatModel(nn.Sequential(norm, nn.Linear(3, 2)), torch.float32)
    start = model.vector()
    features, _ = batch()
    model(features)
    norm.seen += 1
    moved = model.vector()
    for _ in range(2):
        model.load(start)
        assert not norm.seen.any()
        model(features)
        assert np.array_equal(model.vector(), moved)


def test_gradients_accumulate_and_tied_weights_get_that_of_both_uses() -> None:
    flat = FlatModel(deep(normed=False), torch.float32)
    train(flat)
    once = flat.gradient.clone()
    train(flat)
    assert torch.equal(flat.gradient, 2 * once)
    assert once.count_nonzero() > 0
    flat.zero_gradient()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in flat.parameters())
    tied, flat = Tied(), FlatModel(Tied(), torch.float32)
    assert [entry.name for entry in flat.layout.entries] == ["decode.weight", "offset"]
    tied.load_state_dict(flat.module.state_dict())
    features, _ = batch()
    tied(features).square().sum().backward()
    flat(features).square().sum().backward()
    assert tied.encode.weight.grad is not None
    assert torch.equal(flat.gradient[:9].view(3, 3), tied.encode.weight.grad)
    flat = FlatModel(Tied(), torch.float32)
    flat(batch()[0]).square().sum().backward()
    flat.step(0.1)
    assert flat.vector()[9:].tolist() == [1, 1, 1]
    assert not flat.layout.entries[1].trainable


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_loaded_is_what_the_model_computes_with(dtype: torch.dtype) -> None:
    module = nn.Linear(2, 2).to(dtype)
    flat = FlatModel(module, dtype)
    vector = np.array([1, 2, 3, 4, 5, 6], flat.layout.dtype)
    vector.flags.writeable = False
    flat.load(vector)
    assert flat(torch.ones(1, 2, dtype=dtype)).tolist() == [[3 + 4 + 1, 5 + 6 + 2]]
    assert np.array_equal(flat.vector(), vector)


@pytest.mark.parametrize("vector", [np.zeros(5, np.float32), np.zeros(6)])
def test_a_vector_that_does_not_fit_is_refused_and_changes_nothing(vector: np.ndarray) -> None:
    flat = FlatModel(nn.Linear(2, 2), torch.float32)
    before = flat.vector()
    with pytest.raises(LocalProtocolError, match="does not fit"):
        flat.load(vector)
    assert np.array_equal(flat.vector(), before)


def test_vectors_are_copies_and_layouts_need_no_flat_model() -> None:
    flat = FlatModel(deep(), torch.float32)
    vector = flat.vector()
    flat.flat.zero_()
    assert vector.any()
    assert layout_of(deep(), torch.float32) == FlatModel(deep(), torch.float32).layout
    with pytest.raises(LocalProtocolError, match="views"):
        FlatModel(nn.Linear(2, 2), torch.float32).to(torch.float64)
    with pytest.raises(LocalProtocolError, match="float16"):
        layout_of(nn.Linear(1, 1), torch.float16)


def test_changes_hold_what_a_large_weight_would_swallow_and_none_where_nothing_moved() -> None:
    flat = FlatModel(nn.Linear(1, 1, bias=False), torch.float32)
    flat.load(np.array([1000.0], np.float32))
    for _ in range(3):
        flat.gradient.fill_(1.0)
        flat.step(1e-6)
    # In float32, 1000 - 1e-6 is 1000.
    assert flat.vector()[0] == 1000.0
    assert flat.take_change() == pytest.approx([-3e-6], rel=1e-6)
    flat = FlatModel(deep(), torch.float32)
    start = flat.flat.clone()
    flat.load(flat.vector())
    train(flat)
    flat.step(0.1)
    flat.go_back_to(start)
    assert not flat.take_change().any()
