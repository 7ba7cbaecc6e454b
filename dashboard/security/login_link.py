"""The login link on the terminal of whoever starts the server, and nowhere else."""

import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

# uvicorn shows its own loggers only; a page cannot hand anybody the link, so it has to be seen.
logger = logging.getLogger("uvicorn.error")
_TOKEN = re.compile(r"(?<=[?&]token=)[^&\s]*")


def announce(token: str) -> None:
    """Say how to get in."""
    logger.info("Dashboard: %s", login_link(token, sys.argv, os.environ))


def login_link(token: str, argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the address that logs a browser in, at the host and port that uvicorn was told.

    >>> login_link("t", ["uvicorn", "dashboard.app:app", "--port", "80", "--host=0.0.0.0"], {})
    'http://127.0.0.1:80/?token=t'
    """
    host = _option("host", argv, environ) or "127.0.0.1"
    port = _option("port", argv, environ) or "8000"
    # "Every address" is none that a browser could open.
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/?{urlencode({'token': token})}"


def _option(name: str, argv: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return what uvicorn's command line, or else its environment variable, says."""
    for index, word in enumerate(argv):
        if word == f"--{name}" and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return environ.get(f"UVICORN_{name.upper()}")


def hide_tokens_in_access_log() -> None:
    """Keep the token, which the link carries, out of uvicorn's log of requests."""
    access = logging.getLogger("uvicorn.access")
    if not any(isinstance(known, _HideTokens) for known in access.filters):
        access.addFilter(_HideTokens())


class _HideTokens(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, without its token."""
        if isinstance(record.args, tuple):
            record.args = tuple(_TOKEN.sub("...", item) if isinstance(item, str) else item for item in record.args)
        return True
