"""A batch filled up to a fixed size computes what the packed one does."""

import numpy as np
import pytest
import torch

from elasticqa.data.micro_batch import pack
from elasticqa.models.question_answering import feature_losses
from elasticqa.training.static_inputs import StaticInputs, StaticShape, fed_ids, fill, token_quantum
from tests.support.models import random_features, tiny

FEATURES = random_features((12, 3, 40, 7, 22, 64, 5, 1))
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("indices", "num_tokens"), [((0, 1, 2), 64), ((5,), 64), ((7,), 256), ((), 128), ((0, 1, 2, 3, 4, 5, 6, 7), 154)]
)
def test_filled_batch_gives_the_loss_and_gradients_of_the_packed_one(indices: tuple[int, ...], num_tokens: int) -> None:
    size = StaticShape(num_tokens, 8, 64)
    chosen = np.array(indices, dtype=np.int64)
    static = StaticInputs(size, CPU)
    content = fill(FEATURES, chosen, size, 11)
    assert fed_ids(content, size) == list(indices)
    static.load(content, stop_vote=1.0)
    filled, num_features, stop_vote = static.views()
    assert (float(num_features), float(stop_vote)) == (11.0, 1.0)
    assert filled.cu_lengths[-1] == num_tokens
    assert int(filled.cu_lengths.diff().max()) <= 64
    results = []
    for batch in (filled, pack(FEATURES, chosen)):
        model = tiny("bert", "packed")
        loss = (feature_losses(model(batch), batch) * batch.weights).sum()
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for mine, expected in zip(*results, strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-5)


def test_buffer_takes_the_next_batch_in_place() -> None:
    size = StaticShape(128, 4, 64)
    static = StaticInputs(size, CPU)
    static.load(fill(FEATURES, np.array([0, 1]), size, 2), stop_vote=0.0)
    batch, _, _ = static.views()
    static.load(fill(FEATURES, np.array([2]), size, 1), stop_vote=0.0)
    assert batch.cu_lengths[:2].tolist() == [0, 40]
    begin = FEATURES.offsets[2]
    assert batch.input_ids[:40].tolist() == FEATURES.input_ids[begin : begin + 40].tolist()


@pytest.mark.parametrize(
    ("deviation", "size", "world_size", "expected"),
    [(65.0, 24, 1, 128), (65.0, 96, 1, 256), (65.0, 48, 2, 64), (65.0, 4, 8, 64), (0.0, 24, 1, 64)],
)
def test_quantum_is_a_power_of_two_near_half_the_deviation_of_a_share(
    deviation: float, size: int, world_size: int, expected: int
) -> None:
    assert token_quantum(deviation, size, world_size) == expected
