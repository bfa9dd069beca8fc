from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedfair.errors import PlanError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.task import LinearModel, MlpModel, ResnetModel
from fedfair.training.flat_model import FlatModel
from fedfair.training.models import build_model, linear, mlp
from fedfair.training.resnet import resnet18

TABLE = FeatureSchema((30,), 2)
IMAGES = FeatureSchema((1, 28, 28), 10)
MLP = MlpModel(name="mlp", hidden=(512,))


def vector(spec: object, seed: int, dtype: torch.dtype = torch.float32, *, workspace: Path = Path()) -> np.ndarray:
    module = build_model(spec, TABLE, seed, dtype, workspace)  # type: ignore[arg-type]  # any spec
    return FlatModel(module, dtype).vector()


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_seeds_build_the_same_models_and_leave_the_global_generator_alone() -> None:
    assert np.array_equal(vector(MLP, 3), vector(MLP, 3))
    assert not np.array_equal(vector(MLP, 3), vector(MLP, 4))
    assert np.array_equal(vector(MLP, 3, torch.float64), vector(MLP, 3).astype(np.float64))
    before = torch.get_rng_state()
    first = vector(MLP, 0)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        assert np.array_equal(vector(MLP, 0), first)


def test_linear_models_and_perceptrons_start_as_stated() -> None:
    model = build_model(LinearModel(name="linear", init="zeros"), TABLE, 0, torch.float64, Path())
    assert model(torch.ones(1, 30, dtype=torch.float64)).softmax(dim=1).tolist() == [[0.5, 0.5]]
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == {
        "output.weight": (2, 30),
        "output.bias": (2,),
    }
    assert vector(LinearModel(name="linear", init="random"), 0).any()
    assert parameters(mlp(30, (), 2)) == parameters(linear(30, 2, "random")) == 62
    assert parameters(mlp(784, (512,), 10)) == 784 * 512 + 512 + 512 * 10 + 10
    assert parameters(mlp(4, (3, 2), 2)) == (4 * 3 + 3) + (3 * 2 + 2) + (2 * 2 + 2)
    assert build_model(MLP, IMAGES, 0, torch.float32, Path())(torch.zeros(5, 1, 28, 28)).shape == (5, 10)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 64, 64)])
def test_resnet18_takes_small_and_large_images(norm: str, shape: tuple[int, int, int]) -> None:
    spec = ResnetModel(name="resnet18", norm=norm)  # type: ignore[arg-type]  # one of the two
    model = build_model(spec, FeatureSchema(shape, 3), 0, torch.float32, Path())
    assert model(torch.zeros(2, *shape)).shape == (2, 3)


def test_resnet18_has_the_published_weights_and_its_norms() -> None:
    # He et al. 2016 with 1000 classes and the 7x7 stem; 10 classes and the 3x3 stem as in their section 4.2.
    assert parameters(resnet18(3, 224, 1000, "batch")) == 11_689_512
    assert parameters(resnet18(3, 32, 10, "group")) == 11_173_962
    for norm, frozen in (("group", 0), ("batch", 40)):
        spec = ResnetModel(name="resnet18", norm=norm)  # type: ignore[arg-type]  # one of the two
        layout = FlatModel(build_model(spec, IMAGES, 0, torch.float32, Path()), torch.float32).layout
        assert sum(not entry.trainable for entry in layout.entries) == frozen  # mean and variance of 20 layers
    with pytest.raises(PlanError, match=r"needs images .* the data are \(30,\)"):
        build_model(ResnetModel(name="resnet18"), TABLE, 0, torch.float32, Path())


def write_module(folder: Path, name: str, body: str) -> str:
    (folder / f"{name}.py").write_text(f"from torch import nn\n\ndef build(schema):\n    {body}\n")
    return f"{name}:build"


def test_functions_and_lazy_layers_are_seeded_too(tmp_path: Path) -> None:
    reference = write_module(tmp_path, "seeded_model", "return nn.Linear(schema.input_shape[0], schema.classes)")
    first, second = (build_model(reference, TABLE, 1, torch.float32, tmp_path) for _ in range(2))
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    assert torch.equal(first.weight, second.weight)
    reference = write_module(tmp_path, "lazy_model", "return nn.LazyLinear(schema.classes)")
    before = torch.get_rng_state()
    first = vector(reference, 1, workspace=tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        assert np.array_equal(vector(reference, 1, workspace=tmp_path), first)
    assert not np.array_equal(vector(reference, 2, workspace=tmp_path), first)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 7", "returned int, not a torch.nn.Module"),
        ("return nn.Linear(30, 1)", r"returns \(2, 1\) for 2 records, expected logits \(2, 2\)"),
        ("return nn.Linear(4, 2)", r"cannot take records of shape \(30,\)"),
        ("raise KeyError('width')", "fails: KeyError: 'width'"),
        ("return nn.ModuleList()", r"cannot take records of shape \(30,\): NotImplementedError"),
        ("return nn.Sequential(nn.Linear(30, 2), schema)", "fails: TypeError"),
    ],
)
def test_a_function_whose_model_does_not_fit_is_refused(tmp_path: Path, body: str, message: str) -> None:
    reference = write_module(tmp_path, f"wrong_{abs(hash(body))}", body)
    with pytest.raises(PlanError, match=message):
        build_model(reference, TABLE, 0, torch.float32, tmp_path)
