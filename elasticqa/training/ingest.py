"""Ingest the journals into the database when a run ends."""

import subprocess
import sys

from db.storage.home import is_home_database, is_home_shared
from elasticqa.config.environment import ENVIRONMENT, without_torchelastic

INGEST_TIMEOUT_S = 60.0
"""Timeout of the ingest of a finished run; agents of other nodes wait twice as long (EXIT_BARRIER_TIMEOUT_S)."""
STOPPED_INGEST_TIMEOUT_S = 10.0
"""Timeout after a request to stop, since a scheduler soon sends SIGKILL."""


def ingest(timeout_s: float) -> str | None:
    """Ingest the journals in a process of its own, and return what went wrong, if anything did.

    Lines that are missed here are ingested later. On a compute node whose home is shared this does nothing: the
    database would be local to that node, where no dashboard reads it.
    """
    if is_home_database(ENVIRONMENT) and is_home_shared(ENVIRONMENT):
        return None
    command = [sys.executable, "-m", "db.ingest"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=without_torchelastic(), timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return f"db.ingest was stopped after {timeout_s:g} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip() or f"db.ingest ended with status {done.returncode}").splitlines()[-1]
