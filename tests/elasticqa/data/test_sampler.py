"""The features of a step depend on (seed, epoch, step); the world size only splits them over ranks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elasticqa.config.batch_plan import batch_plan
from elasticqa.config.train_config import TrainConfig
from elasticqa.data.micro_batch import pack
from elasticqa.data.sampler import Sampler, epoch_order, shares
from tests.support.models import random_features


def samplers(num_features: int, world_size: int, *, batch: int = 7, micro: int = 3) -> list[Sampler]:
    plan = batch_plan(TrainConfig(global_batch_size=batch, epochs=2), num_features, world_size)
    lengths = np.random.default_rng(1).integers(1, 100, num_features)
    return [
        Sampler(plan, lengths, seed=3, rank=rank, world_size=world_size, micro_batch_size=micro)
        for rank in range(world_size)
    ]


@given(num_features=st.integers(7, 60), world_size=st.integers(1, 6))
def test_each_step_feeds_the_same_features_once_at_any_world_size(num_features: int, world_size: int) -> None:
    alone = samplers(num_features, 1)[0]
    ranks = samplers(num_features, world_size)
    steps_per_epoch = -(-num_features // 7)
    for epoch in range(2):
        seen: list[int] = []
        for step in range(epoch * steps_per_epoch, (epoch + 1) * steps_per_epoch):
            fed = [int(i) for rank in ranks for part in rank.step_batch(step).micro_batches for i in part]
            assert sorted(fed) == sorted(alone.global_batch(step)[1].tolist())
            seen += fed
        assert sorted(seen) == list(range(num_features))


@given(num_features=st.integers(7, 60), world_size=st.integers(1, 6), micro=st.integers(1, 8))
def test_ranks_run_equally_many_micro_batches_within_the_limit(num_features: int, world_size: int, micro: int) -> None:
    ranks = samplers(num_features, world_size, micro=micro)
    for step in range(-(-num_features // 7)):
        parts = [rank.step_batch(step).micro_batches for rank in ranks]
        assert len({len(part) for part in parts}) == 1
        assert all(len(indices) <= micro for part in parts for indices in part)


@given(st.lists(st.integers(1, 384), min_size=1, max_size=64), st.integers(1, 8))
def test_shares_hold_every_position_once_and_are_balanced(lengths: list[int], world_size: int) -> None:
    parts = shares(lengths, world_size)
    assert sorted(position for part in parts for position in part) == list(range(len(lengths)))
    tokens = [sum(lengths[position] for position in part) for part in parts]
    assert max(tokens) - min(tokens) <= max(lengths)


def test_epoch_order_differs_between_epochs_and_seeds() -> None:
    orders = {tuple(epoch_order(seed, epoch, 50).tolist()) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
    assert epoch_order(1, 0, 5).tolist() == epoch_order(1, 0, 5).tolist()


def test_epoch_order_equals_that_of_earlier_versions() -> None:
    # A run resumed from a checkpoint of an earlier version must keep its order.
    assert epoch_order(42, 0, 8).tolist() == [0, 1, 4, 2, 6, 5, 7, 3]


def test_pack_lays_features_end_to_end() -> None:
    features = random_features((3, 2, 4))
    batch = pack(features, np.array([2, 0]))
    assert batch.cu_lengths.tolist() == [0, 4, 7]
    assert batch.position_ids.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert batch.input_ids.tolist() == [*features.input_ids[5:9].tolist(), *features.input_ids[:3].tolist()]
    assert batch.token_type_ids.tolist() == [0, 0, 1, 1, 0, 1, 1]
    assert batch.mask.sum(1).tolist() == [4, 3]
    assert batch.input_ids[batch.pad_index][batch.mask].tolist() == batch.input_ids.tolist()
    assert batch.input_ids[batch.pad_index].flatten()[batch.unpad_index].tolist() == batch.input_ids.tolist()
    assert batch.fed_ids() == [2, 0]
    # Padding that points to the same token would serialize the gradient additions of a GPU.
    assert batch.pad_index.flatten().bincount().max() <= 2
