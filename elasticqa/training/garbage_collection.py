"""What Python's collector of cycles goes through while steps are taken: what they made, and nothing older.

Libraries leave some 400,000 objects in a trainer. A full collection looks at all of them, for 0.05 to 0.15 s during
which no thread of this process runs Python, and the objects with which a checkpoint is planned set off one or several.
"""

import gc


def settle() -> None:
    """Leave out whatever there is now; to be called once all is built and a step has been taken."""
    # First what is garbage already: it would stay, and with it the memory on the device that it holds.
    gc.collect()
    gc.freeze()


def unsettle() -> None:
    """Look at everything again."""
    gc.unfreeze()
