"""The login link, which only the terminal of the server shows."""

import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

# uvicorn shows the messages of its own loggers only, and this message must be visible.
logger = logging.getLogger("uvicorn.error")
_TOKEN = re.compile(r"(?<=[?&]token=)[^&\s]*")


def log_login_link(token: str) -> None:
    """Log the login link."""
    logger.info("Dashboard: %s", login_link(token, sys.argv, os.environ))


def login_link(token: str, argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the address that logs a browser in, at the host and port of uvicorn's options.

    >>> login_link("t", ["uvicorn", "dashboard.app:app", "--port", "80", "--host=0.0.0.0"], {})
    'http://127.0.0.1:80/?token=t'
    """
    host = _option("host", argv, environ) or "127.0.0.1"
    port = _option("port", argv, environ) or "8000"
    # Browsers cannot open the address that stands for all addresses.
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/?{urlencode({'token': token})}"


def _option(name: str, argv: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return an option of uvicorn's command line, else its environment variable."""
    for index, word in enumerate(argv):
        if word == f"--{name}" and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return environ.get(f"UVICORN_{name.upper()}")


def hide_tokens_in_access_log() -> None:
    """Hide the token of the login link in uvicorn's access log."""
    access = logging.getLogger("uvicorn.access")
    if not any(isinstance(each, _HideTokens) for each in access.filters):
        access.addFilter(_HideTokens())


class _HideTokens(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record; replace the token in it."""
        if isinstance(record.args, tuple):
            record.args = tuple(_TOKEN.sub("...", item) if isinstance(item, str) else item for item in record.args)
        return True
