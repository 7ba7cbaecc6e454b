"""The Triton kernels equal plain torch, with the same dropout masks, computed in NumPy."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from elasticqa.config.train_config import TrainConfig
from elasticqa.models.kernels.adamw import AdamWKernel
from elasticqa.models.kernels.attention import HEAD_SIZES, _attention, attention, draw_seeds
from elasticqa.models.kernels.layers import _ResidualNorm, column_sums, gelu, linear, residual_norm
from elasticqa.training.optimizer import Updater, build_optimizer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

DEVICE = torch.device("cuda", 0)
LENGTHS = (1, 384, 0, 170, 33, 64, 65, 293, 128, 0)
SEED = 987654321
Words = NDArray[np.uint32]


def word(number: int) -> Words:
    return np.array(number, dtype=np.uint32)


def partly_hashed(bits: Words) -> Words:
    bits = bits ^ (bits >> word(16))
    bits = bits * word(0x7FEB352D)
    bits = bits ^ (bits >> word(15))
    return np.asarray(bits * word(0x846CA68B))


def hashed(bits: Words) -> Words:
    bits = partly_hashed(bits)
    return np.asarray(bits ^ (bits >> word(16)))


def kept_probabilities(begin: int, length: int, num_heads: int, dropout: float) -> Tensor:
    """Return which of a feature's probabilities, (heads, length, length), the kernel keeps."""
    with np.errstate(over="ignore"):
        heads = np.arange(num_heads, dtype=np.uint32) * word(0x9E3779B9) + word(SEED)
        rows = hashed(np.arange(begin, begin + length, dtype=np.uint32) ^ hashed(heads)[:, None])
        columns = hashed(np.arange(length, dtype=np.uint32) + word(0x85EBCA6B))
        bits = (rows[:, :, None] ^ columns) * word(0x7FEB352D)
        bits = (bits ^ (bits >> word(15))) * word(0x846CA68B)
    return torch.from_numpy(bits.view(np.int32) >= round((dropout - 0.5) * 2**32)).to(DEVICE)


def plain_attention(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
    outputs, begin = [], 0
    for length in LENGTHS:
        part = slice(begin, begin + length)
        scores = torch.einsum("thd,shd->hts", query[part], key[part]) * query.shape[-1] ** -0.5
        probabilities = scores.softmax(-1)
        if dropout:
            kept = kept_probabilities(begin, length, query.shape[1], dropout)
            probabilities = probabilities * kept / (1 - dropout)
        outputs.append(torch.einsum("hts,shd->thd", probabilities, value[part]))
        begin += length
    return torch.cat(outputs)


def distance(value: Tensor, reference: Tensor) -> float:
    return float((value.detach().double() - reference.detach()).norm() / reference.detach().norm())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("size", HEAD_SIZES)
def test_attention_and_its_gradients_equal_plain_ones(size: int, dropout: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    cu_lengths = torch.tensor(np.concatenate([[0], np.cumsum(LENGTHS)]), dtype=torch.int32, device=DEVICE)
    packed = torch.randn(sum(LENGTHS), 3, 3, size, device=DEVICE).to(dtype).requires_grad_()
    reference = packed.detach().double().requires_grad_()
    gradient = torch.randn(sum(LENGTHS), 3, size, device=DEVICE).to(dtype)
    seed = torch.tensor([SEED], dtype=torch.int32, device=DEVICE)
    output, _ = _attention(packed, cu_lengths, seed, 384, dropout, size**-0.5)
    query, key, value = reference.unbind(1)
    expected = plain_attention(query, key, value, dropout)
    output.backward(gradient)
    expected.backward(gradient.double())
    tolerance = 1e-2 if dtype == torch.bfloat16 else 2e-3
    assert distance(output, expected) < tolerance
    assert packed.grad is not None
    assert reference.grad is not None
    for part, other in zip(packed.grad.unbind(1), reference.grad.unbind(1), strict=True):
        assert distance(part, other) < tolerance


def test_attention_is_deterministic() -> None:
    cu_lengths = torch.tensor(np.concatenate([[0], np.cumsum(LENGTHS)]), dtype=torch.int32, device=DEVICE)
    packed = torch.randn(sum(LENGTHS), 3, 12, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    results = []
    for _ in range(3):
        torch.manual_seed(5)
        packed.grad = None
        output = attention(packed, cu_lengths, 384, 0.1, 0.125)
        output.square().sum().backward()
        results.append((output.detach(), packed.grad))
    for output, gradient in results[1:]:
        assert torch.equal(output, results[0][0])
        assert gradient is not None
        assert torch.equal(gradient, results[0][1])


@pytest.mark.parametrize("width", [32, 384, 768, 1024])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["kept", "gathered"])
def test_residual_norm_and_its_gradients_equal_plain_ones(width: int, dropout: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    rows = 1537
    values, residual, gradient = (torch.randn(rows, width, device=DEVICE).bfloat16() for _ in range(3))
    bias, weight, shift = (torch.randn(width, device=DEVICE).to(dtype) for _ in range(3))
    given = [values, bias, residual, weight, shift]
    inputs = [each.clone().requires_grad_() for each in given]
    references = [each.double().requires_grad_() for each in given]
    seed = torch.tensor([SEED], dtype=torch.int32, device=DEVICE) if dropout else None
    output = _ResidualNorm.apply(*inputs, seed, dropout, 1e-12)  # type: ignore[no-untyped-call]
    with np.errstate(over="ignore"):
        bits = partly_hashed(np.arange(rows * width, dtype=np.uint32) ^ word(SEED))
    is_kept = bits.view(np.int32).reshape(rows, width) >= round((dropout - 0.5) * 2**32)
    kept = torch.from_numpy(is_kept).to(DEVICE)
    dropped = torch.where(kept, (references[0] + references[1]) / (1 - dropout), 0.0)
    expected = F.layer_norm(references[2] + dropped, (width,), references[3], references[4], 1e-12)
    output.backward(gradient)
    expected.backward(gradient.double())
    assert distance(output, expected) < 5e-3
    for mine, reference in zip(inputs, references, strict=True):
        assert mine.grad is not None
        assert reference.grad is not None
        assert mine.grad.dtype == mine.dtype
        assert distance(mine.grad, reference.grad) < 1e-2


def test_residual_norm_drops_with_the_probability_and_differently_for_each_seed() -> None:
    norm = nn.LayerNorm(768, device=DEVICE)
    with torch.no_grad():
        norm.weight.fill_(1.0)
    ones = torch.ones(2048, 768, device=DEVICE, dtype=torch.bfloat16)
    zeros = torch.zeros_like(ones)
    no_bias = torch.zeros(768, device=DEVICE)
    outputs = [residual_norm(ones, no_bias, zeros, norm, 0.25, seed) for seed in draw_seeds(2, DEVICE).split(1)]
    kept = [output > 0 for output in outputs]
    for each in kept:
        assert float(each.float().mean()) == pytest.approx(0.75, abs=5 * (0.25 * 0.75 / ones.numel()) ** 0.5)
    agreement = float((kept[0] == kept[1]).float().mean())
    assert agreement == pytest.approx(0.75**2 + 0.25**2, abs=3e-3)


@pytest.mark.parametrize("shape", [(1, 32), (4096, 3072), (1537, 300)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["kept", "gathered"])
def test_gelu_and_its_gradients_equal_plain_ones(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    values, gradient = (torch.randn(shape, device=DEVICE).mul(2).bfloat16() for _ in range(2))
    bias = torch.randn(shape[1], device=DEVICE).to(dtype)
    inputs = [values.clone().requires_grad_(), bias.clone().requires_grad_()]
    references = [values.double().requires_grad_(), bias.double().requires_grad_()]
    output = gelu(*inputs)
    expected = F.gelu(references[0] + references[1])
    output.backward(gradient)
    expected.backward(gradient.double())
    assert distance(output, expected) < 5e-3
    for mine, reference in zip(inputs, references, strict=True):
        assert mine.grad is not None
        assert reference.grad is not None
        assert distance(mine.grad, reference.grad) < 5e-3


@pytest.mark.parametrize("num_weights", [1, 3])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["kept", "gathered"])
def test_linear_computes_gradients_of_its_parameters(num_weights: int, has_bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    values = torch.randn(517, 64, device=DEVICE).bfloat16()
    weights = [torch.randn(96, 64, device=DEVICE).to(dtype) for _ in range(num_weights)]
    biases = [torch.randn(96, device=DEVICE).to(dtype) for _ in range(num_weights)] if has_bias else []
    parameters = [each.requires_grad_() for each in (*weights, *biases)]
    inputs = values.clone().requires_grad_()
    concatenated = torch.cat(weights).detach().bfloat16()
    bias = torch.cat(biases).detach().bfloat16() if has_bias else None
    output = linear(inputs, concatenated, bias, *parameters)
    gradient = torch.randn_like(output)
    output.backward(gradient)
    expected = values.double() @ concatenated.double().t() + (0 if bias is None else bias.double())
    assert distance(output, expected) < 5e-3
    assert inputs.grad is not None
    assert distance(inputs.grad, gradient.double() @ concatenated.double()) < 5e-3
    of_weights = (gradient.double().t() @ values.double()).chunk(num_weights)
    of_biases = gradient.double().sum(0).chunk(num_weights) if has_bias else ()
    for parameter, reference in zip(parameters, (*of_weights, *of_biases), strict=True):
        assert parameter.grad is not None
        assert parameter.grad.dtype == dtype
        assert distance(parameter.grad, reference) < (1e-4 if dtype == torch.float32 else 5e-3)


needs_much_memory = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_properties(DEVICE).total_memory < 60 * 2**30,
    reason="needs 60 GiB of GPU memory",
)


@needs_much_memory
def test_attention_is_correct_for_more_than_2_to_the_31_values() -> None:
    num_features, length, heads, size = 1830, 384, 16, 64
    cu_lengths = torch.arange(num_features + 1, dtype=torch.int32, device=DEVICE) * length
    packed = torch.randn(num_features * length, 3, heads, size, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
    assert packed.numel() > 2**31
    gradient = torch.randn(num_features * length, heads, size, device=DEVICE, dtype=torch.bfloat16)
    output = attention(packed, cu_lengths, length, 0.0, size**-0.5)
    output.backward(gradient)
    assert packed.grad is not None
    for part in (slice(0, length), slice(-length, None)):
        own = packed.detach()[part].clone().requires_grad_()
        expected = attention(own, cu_lengths[:2], length, 0.0, size**-0.5)
        expected.backward(gradient[part])
        assert own.grad is not None
        assert torch.equal(output[part], expected)
        assert torch.equal(packed.grad[part], own.grad)


@needs_much_memory
def test_layer_kernels_are_correct_for_more_than_2_to_the_31_values() -> None:
    rows, width = 2**31 // 1024 + 1000, 1024
    last = slice(-8, None)
    values = torch.randn(rows, width, device=DEVICE, dtype=torch.bfloat16)
    bias, norm = torch.randn(width, device=DEVICE), nn.LayerNorm(width, device=DEVICE)

    def normed(each: Tensor) -> Tensor:
        return residual_norm(each, bias, each.detach(), norm, 0.0, None)

    for work in (lambda each: gelu(each, bias), normed):
        whole, own = values.clone().requires_grad_(), values[last].clone().requires_grad_()
        output, expected = work(whole), work(own)
        assert torch.equal(output[last], expected)
        output.backward(values)
        expected.backward(values[last])
        assert whole.grad is not None
        assert own.grad is not None
        assert torch.equal(whole.grad[last], own.grad)
        del whole, output
    values.zero_()
    values[last] = 1
    assert column_sums(values, torch.float32).tolist() == [8.0] * width


def test_column_sums_are_deterministic() -> None:
    values = torch.randn(4099, 2304, device=DEVICE).bfloat16()
    sums = [column_sums(values, torch.float32) for _ in range(3)]
    assert distance(sums[0], values.double().sum(0)) < 1e-5
    assert torch.equal(sums[0], sums[1])
    assert torch.equal(sums[0], sums[2])


@pytest.mark.parametrize("is_aligned", [True, False])
def test_adamw_kernel_equals_the_update_of_torch(is_aligned: bool) -> None:
    config = TrainConfig(weight_decay=0.3)
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        models.append(nn.Sequential(nn.Linear(300, 41), nn.Linear(41, 7), nn.LayerNorm(7)).to(DEVICE))
    optimizers = [build_optimizer(model, config) for model in models]
    updaters = [Updater(optimizer, config, "bf16", DEVICE) for optimizer in optimizers]
    rate = torch.tensor(1e-2, device=DEVICE)
    for step in range(5):
        loss = torch.tensor(math.nan if step == 2 else 1.0, device=DEVICE)
        for model in models:
            torch.manual_seed(step)
            for parameter in model.parameters():
                gradient = torch.randn(parameter.numel() + 1, device=DEVICE) * 0.1**step
                parameter.grad = gradient[0 if is_aligned else 1 :][: parameter.numel()].view_as(parameter)
        if step == 0:
            updaters[1].make_state()
        norms = [updaters[0].step(1e-2, loss)]
        graph = torch.cuda.CUDAGraph()
        kernel = updaters[1].kernel = AdamWKernel(optimizers[1])
        kernel.warm_up()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            norms.append(updaters[1].step(rate, loss))
        updaters[1].kernel = None
        kernel.bind_addresses()
        graph.replay()
        assert torch.equal(norms[0], norms[1])
        for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
            torch.testing.assert_close(other, one, atol=1e-6, rtol=1e-5)
            for name in ("step", "exp_avg", "exp_avg_sq"):
                states = optimizers[0].state[one][name], optimizers[1].state[other][name]
                torch.testing.assert_close(states[1], states[0], atol=1e-7, rtol=1e-5)
