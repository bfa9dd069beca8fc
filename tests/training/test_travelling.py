"""What travels of a model, what is frozen and by which digest, and the file that frozen values come from."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedfair.errors import DataError, PlanError
from fedfair.plan.parameters import LoraSection, ParametersSection
from fedfair.training.flat_model import FlatModel
from fedfair.training.lora import merge_adapters, with_adapters
from fedfair.training.travelling import Parts, distinct_tensors, freeze_tensors, frozen_digest, parts_of

HEAD = ParametersSection(train=("head.*",))


class Encoder(nn.Module):
    """An encoder with running statistics, and a head."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU())
            self.head = nn.Linear(5, 2)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        logits: torch.Tensor = self.head(self.encoder(features))
        return logits


def frozen(stated: ParametersSection = HEAD, seed: int = 1) -> FlatModel:
    module = Encoder(seed)
    return FlatModel(module, torch.float32, parts=parts_of(module, stated))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(2)
    return torch.randn(16, 3, generator=source), torch.randint(2, (16,), generator=source)


def slow_digest(model: nn.Module) -> bytes:
    """Return the digest of the encoder as the module's header words it, field by field."""
    fields = [b"fedfair/frozen/v1"]
    for name, tensor in sorted(model.state_dict().items()):
        if name.startswith("encoder.") and tensor.is_floating_point():
            lengths = [length.to_bytes(8, "big") for length in tensor.shape]
            fields += [name.encode(), b"float32", b"".join(lengths), tensor.numpy().astype("<f4").tobytes()]
    return hashlib.sha256(b"".join(len(one).to_bytes(8, "big") + one for one in fields)).digest()


def test_what_does_not_travel_keeps_its_bits_in_training_and_gets_no_gradient() -> None:
    flat, untouched = frozen(), Encoder()
    assert [entry.name for entry in flat.layout.entries] == ["head.bias", "head.weight"]
    features, labels = batch()
    # The first step may come before any evaluation: nobody has said then that it is training.
    for place in range(3):
        if place:
            flat.train()
        nn.functional.cross_entropy(flat(features), labels).backward()
        flat.step(0.5)
        flat.zero_gradient()
    moved, before = flat.module.state_dict(), untouched.state_dict()
    for name, tensor in before.items():
        # The running statistics too, and the count of their batches.
        assert torch.equal(moved[name], tensor) != name.startswith("head."), name
    assert all(one.grad is None for one in flat.module.get_submodule("encoder").parameters())
    # What an ordinary optimiser makes of the head, over the encoder in evaluation.
    untouched.encoder.eval()
    optimiser = torch.optim.SGD(untouched.head.parameters(), lr=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        nn.functional.cross_entropy(untouched(features), labels).backward()
        optimiser.step()
    assert torch.equal(moved["head.weight"], untouched.head.weight)


def test_the_digest_covers_every_frozen_value_and_none_that_travels() -> None:
    digest = frozen().layout.frozen
    assert digest == slow_digest(Encoder())
    assert FlatModel(Encoder(), torch.float32).layout.frozen == b""
    for name in distinct_tensors(Encoder()):
        module = Encoder()
        with torch.no_grad():
            distinct_tensors(module)[name].view(-1)[-1] += 2**-20
        other = FlatModel(module, torch.float32, parts=parts_of(module, HEAD)).layout
        assert (other.frozen != digest) == name.startswith("encoder."), name
        assert (other.digest != frozen().layout.digest) == name.startswith("encoder."), name
    assert frozen_digest({}) == b""


@pytest.mark.parametrize(
    ("patterns", "fault"),
    [
        (("haed.*",), r"train: haed\.\* names no parameter of the model"),
        (("encoder.1.running_*",), "of which nothing can be trained"),
    ],
)
def test_patterns_that_train_nothing_are_refused(patterns: tuple[str, ...], fault: str) -> None:
    with pytest.raises(PlanError, match=fault):
        parts_of(Encoder(), ParametersSection(train=patterns))


def test_adapters_begin_as_the_model_was_move_it_and_are_merged() -> None:
    features, labels = batch()
    module = Encoder().eval()
    before = module(features)
    with_adapters(module, LoraSection(layers=("encoder.*",), rank=2, alpha=4.0))
    stated = ParametersSection(lora=LoraSection(layers=("encoder.*",), rank=2, alpha=4.0))
    flat = FlatModel(module, torch.float32, parts=parts_of(module, stated))
    assert [entry.name for entry in flat.layout.entries] == ["encoder.0.lora_down", "encoder.0.lora_up"]
    assert torch.equal(flat(features), before)
    for _ in range(20):
        flat.zero_gradient()
        nn.functional.cross_entropy(flat(features), labels).backward()
        flat.step(0.5)
    after = flat.eval()(features).detach()
    assert (after - before).abs().max() > 0.1
    # The formula, written out.
    down, up = flat.layout.unflatten(flat.vector()).values()
    weight = Encoder().encoder[0].weight.detach().numpy() + 4.0 / 2.0 * up @ down
    merge_adapters(module)
    assert type(module.encoder[0]) is nn.Linear
    assert np.allclose(module.encoder[0].weight, weight, rtol=1e-6, atol=1e-6)
    assert torch.allclose(module(features), after, atol=1e-5)
    with pytest.raises(PlanError, match=r"layers: encoder\.1 names no linear layer") as refused:
        with_adapters(Encoder(), LoraSection(layers=("encoder.1",)))
    assert refused.value.remedy == "its linear layers are encoder.0, head"


def whole(folder: Path) -> Path:
    save_file(Encoder(7).state_dict(), folder / "model.safetensors")
    return folder / "model.safetensors"


def shards(folder: Path) -> Path:
    held = Encoder(7).state_dict()
    for place, name in enumerate(held):
        save_file({name: held[name]}, folder / f"model-{place:05}.safetensors")
    return folder


def cached(folder: Path) -> Path:
    (folder / "snapshots" / "1234").mkdir(parents=True)
    own = {
        name.removeprefix("encoder."): one for name, one in Encoder(7).state_dict().items() if "head" not in name
    }
    save_file(own, folder / "blob")
    (folder / "snapshots" / "1234" / "model.safetensors").symlink_to(folder / "blob")
    return folder


@pytest.mark.parametrize("made", [whole, shards, cached])
def test_frozen_values_come_from_a_file_from_shards_or_from_a_cache(
    tmp_path: Path, made: Callable[[Path], Path]
) -> None:
    module = Encoder()
    travels = parts_of(module, HEAD).travel or frozenset()
    freeze_tensors(module, travels, made(tmp_path))
    found, given, own = module.state_dict(), Encoder(7).state_dict(), Encoder().state_dict()
    for name, tensor in found.items():
        assert torch.equal(tensor, (own if name.startswith("head.") else given)[name]), name
    flat = FlatModel(module, torch.float32, parts=Parts(travels))
    assert flat.layout.frozen == frozen(seed=7).layout.frozen


class Tied(nn.Module):
    """A language model whose last layer is its embedding, with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"words": nn.Embedding(7, 3), "norm": nn.LayerNorm(3)})
        self.answers = nn.Linear(3, 7, bias=False)
        self.answers.weight = self.body["words"].weight
        self.head = nn.Linear(3, 2)


@pytest.mark.parametrize("lead", ["", "body."], ids=["whole", "body"])
def test_a_file_may_have_tied_frozen_values_under_any_of_their_names(tmp_path: Path, lead: str) -> None:
    module, given = Tied(), torch.randn(7, 3)
    # The model knows them as answers.weight. Files of `transformers` have them where the embedding is.
    names = {"words.weight": given, "norm.weight": torch.ones(3), "norm.bias": torch.ones(3)}
    save_file({lead + name: one for name, one in names.items()}, tmp_path / "model.safetensors")
    freeze_tensors(module, parts_of(module, HEAD).travel or frozenset(), tmp_path)
    assert module.answers.weight is module.body["words"].weight
    assert torch.equal(module.answers.weight, given)
    assert torch.equal(module.body["norm"].bias, torch.ones(3))


def test_a_place_without_the_frozen_values_is_refused_in_words(tmp_path: Path) -> None:
    tensors = nn.Module()
    tensors.encoder = nn.Sequential(nn.Linear(3, 5, bias=False))
    with pytest.raises(DataError, match=r"holds no \.safetensors file"):
        freeze_tensors(tensors, (), tmp_path)
    for revision in ("1", "2"):
        (tmp_path / "cache" / "snapshots" / revision).mkdir(parents=True)
        save_file({"a": torch.zeros(1)}, tmp_path / "cache" / "snapshots" / revision / "model.safetensors")
    with pytest.raises(DataError, match="2 revisions of a model: 1, 2"):
        freeze_tensors(tensors, (), tmp_path / "cache")
    place = tmp_path / "model.safetensors"
    save_file({"encoder.1.weight": torch.zeros(5)}, place)
    with pytest.raises(DataError, match=r"lack encoder\.0\.weight"):
        freeze_tensors(tensors, (), place)
    save_file({"encoder.0.weight": torch.zeros(5, 4)}, place)
    with pytest.raises(DataError, match=r"has encoder\.0\.weight as \(5, 4\) float32, the model's is \(5, 3\)"):
        freeze_tensors(tensors, (), place)
    place.write_bytes(b"no tensors")
    with pytest.raises(DataError, match="cannot be read"):
        freeze_tensors(tensors, (), place)
