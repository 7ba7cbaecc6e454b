"""Status of a run as a reader sees it now."""

LOST_AFTER_S = 60.0
"""A live run writes a line every few seconds; one silent for longer has died without saying so."""


def effective_status(status: str, last_seen_at: float | None, now: float) -> str:
    """Return `lost` for a run that says it is running and has been silent for too long, else its own status.

    Args:
        status: as stored.
        last_seen_at: Unix seconds of its newest line; None counts as silent for ever.
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
