"""Status of a run at a given time."""

LOST_AFTER_S = 60.0
"""A live run writes a line every few seconds; without one for this long, its processes have died."""


def effective_status(status: str, last_seen_at: float | None, now: float) -> str:
    """Return `lost` for a running run without recent lines, else its own status.

    Args:
        status: stored in the database.
        last_seen_at: Unix seconds of its newest line; None counts as lost.
        now: Unix seconds.

    >>> effective_status("running", 100.0, now=130.0)
    'running'
    >>> effective_status("running", 100.0, now=161.0)
    'lost'
    >>> effective_status("finished", 100.0, now=1e9)
    'finished'
    """
    if status == "running" and (last_seen_at is None or now - last_seen_at > LOST_AFTER_S):
        return "lost"
    return status
