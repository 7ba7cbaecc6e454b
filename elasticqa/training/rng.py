"""Random numbers as a function of (seed, step, rank): there is no generator state to lose."""

import numpy as np
import torch


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seed dropout on every device for one step of one rank, so that a resumed run draws the same numbers."""
    state = np.random.SeedSequence([seed, step, rank]).generate_state(1, dtype=np.uint64)
    # torch.manual_seed takes a signed 64-bit integer.
    torch.manual_seed(int(state[0] >> np.uint64(1)))
