"""Exclude long-lived objects from garbage collection during training.

Libraries leave some 400,000 objects in a trainer. A full collection visits all of them and stops every thread of the
process for 0.05 to 0.15 s; planning a checkpoint allocates enough objects to start one or several.
"""

import gc


def settle() -> None:
    """Exclude all current objects; call it after the first step, when all parts are built."""
    # Free garbage first: excluded garbage, and the device memory it holds, would stay.
    gc.collect()
    gc.freeze()


def unsettle() -> None:
    """Include all objects again."""
    gc.unfreeze()
