"""Static files and plotly.js, and their addresses, which contain a digest or version of the content."""

import gzip
import hashlib
import re
from functools import cache
from pathlib import Path

from plotly.offline import get_plotlyjs, get_plotlyjs_version

STATIC = Path(__file__).parents[1] / "static"
PLOTLY = "plotly.min.js"


@cache
def asset_url(name: str) -> str:
    """Return the address of an asset; it changes with the content, so that browsers may cache it forever."""
    version = get_plotlyjs_version() if name == PLOTLY else hashlib.sha256(content(name)).hexdigest()[:12]
    return f"/static/{version}/{name}"


@cache
def map_style_ids() -> tuple[str, ...]:
    """Return the element ids by which plotly.js finds the style sheet of its maps.

    Our Content-Security-Policy blocks that style sheet, and plotly.js does not add it if an element with the id exists.
    """
    return tuple(sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', get_plotlyjs()))))


def content(name: str) -> bytes:
    """Return the bytes of an asset."""
    return get_plotlyjs().encode() if name == PLOTLY else (STATIC / name).read_bytes()


@cache
def compressed(name: str) -> bytes:
    """Return the bytes of an asset, compressed with gzip."""
    return gzip.compress(content(name), mtime=0)
