"""Frozen layers in 8 bits: how far their weights are off, and what is computed with them."""

import copy

import pytest
import torch
from torch import nn

from fedfair.training.eight_bits import (
    GREATEST,
    EightBitLinear,
    EightBitLora,
    hold_in_eight_bits,
    widen_eight_bits,
)
from fedfair.training.flat_model import FlatModel
from fedfair.training.lora import LoraLinear, merge_adapters


def two_layers(seed: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(LoraLinear(nn.Linear(6, 5), 2, 4.0), nn.Tanh(), nn.Linear(5, 4), nn.Linear(4, 3))
    nn.init.normal_(model[0].lora_up)
    return model


MOVING = {"0.lora_down", "0.lora_up", "3.weight", "3.bias"}


def test_no_entry_is_off_by_more_than_half_a_step_of_its_row() -> None:
    model = two_layers()
    with torch.no_grad():
        model[2].weight[1].zero_()
        model[2].weight[2] *= 1e-6
    whole = copy.deepcopy(model)
    hold_in_eight_bits(model, MOVING)
    for place, kind in ((0, EightBitLora), (2, EightBitLinear)):
        layer, before = model[place], whole[place].weight.detach()
        assert type(layer) is kind
        assert layer.codes.dtype == torch.int8
        assert layer.codes.abs().max() == GREATEST
        off = (layer.weight - before).abs()
        assert bool((off <= layer.scale * (0.5 + 1e-5)).all())
        assert off.max() > 0.0
    assert model[2].weight[1].abs().max() == 0.0
    # What moves is left as it is, and what is held is no parameter and no buffer any more.
    assert type(model[3]) is nn.Linear
    assert {name for name, _ in model.named_parameters()} == {*MOVING, "0.bias", "2.bias"}
    assert not dict(model.named_buffers())


def test_steps_and_exports_are_those_of_layers_with_the_weights_that_are_held() -> None:
    model, features = two_layers(), torch.randn(7, 6)
    hold_in_eight_bits(model, MOVING)
    plain = two_layers()
    for place in (0, 2):
        plain[place].weight.data = model[place].weight.clone()
    found, expected = model(features), plain(features)
    assert torch.equal(found, expected)
    for outputs in (found, expected):
        outputs.square().sum().backward()
    for name in ("lora_down", "lora_up", "bias"):
        assert torch.equal(getattr(model[0], name).grad, getattr(plain[0], name).grad)
    merge_adapters(model)
    widen_eight_bits(model)
    assert {type(layer) for layer in model} == {nn.Linear, nn.Tanh}
    assert torch.allclose(model(features), expected, atol=1e-6)


def test_a_weight_that_two_layers_share_is_left_as_it_is() -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9, bias=False), nn.Linear(9, 2))
    model[1].weight = model[0].weight
    hold_in_eight_bits(model, {"2.weight", "2.bias"})
    assert type(model[1]) is nn.Linear
    assert model[1].weight is model[0].weight


@pytest.mark.parametrize("width", [torch.float32, torch.float64])
def test_the_width_of_a_model_is_that_of_its_weights(width: torch.dtype) -> None:
    model = FlatModel(two_layers().to(width), width)
    hold_in_eight_bits(model.module, MOVING)
    assert model(torch.randn(3, 6, dtype=width)).dtype == width
