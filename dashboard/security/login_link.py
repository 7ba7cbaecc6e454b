"""The login link, which only the terminal of the server shows."""

import argparse
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

# Use a logger of uvicorn: it shows only the messages of its own loggers.
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
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--host", nargs="?")
    parser.add_argument("--port", nargs="?")
    options, _ = parser.parse_known_args(argv)
    host = options.host or environ.get("UVICORN_HOST") or "127.0.0.1"
    port = options.port or environ.get("UVICORN_PORT") or "8000"
    # Browsers cannot open the wildcard address (0.0.0.0 or ::).
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/?{urlencode({'token': token})}"


def hide_tokens_in_access_log() -> None:
    """Hide the token of the login link in uvicorn's access log."""
    logging.getLogger("uvicorn.access").addFilter(_hide_token)


def _hide_token(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(_TOKEN.sub("...", item) if isinstance(item, str) else item for item in record.args)
    return True
