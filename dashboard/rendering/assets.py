"""What pages load beside themselves: our own files and plotly.js, under addresses that name their content."""

import gzip
import hashlib
import re
from functools import cache
from pathlib import Path

from plotly.offline import get_plotlyjs, get_plotlyjs_version
from starlette.requests import Request
from starlette.responses import Response

STATIC = Path(__file__).parents[1] / "static"
PLOTLY = "plotly.min.js"
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"


@cache
def asset_url(name: str) -> str:
    """Return the address of an asset; it changes when the content does, so a browser may keep it for ever."""
    version = get_plotlyjs_version() if name == PLOTLY else hashlib.sha256(_own(name)).hexdigest()[:12]
    return f"/static/{version}/{name}"


@cache
def map_style_ids() -> tuple[str, ...]:
    """Return the ids under which plotly.js looks for the style sheet of its maps before it adds one.

    The policy of our pages refuses that sheet, and a page that holds an element of such an id is spared it.
    """
    return tuple(sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', get_plotlyjs()))))


def asset_response(request: Request, version: str, name: str) -> Response:
    """Return an asset, compressed where the browser takes it; 404 for an unknown name or another version."""
    known = {PLOTLY, *(path.name for path in STATIC.iterdir())}
    if name not in known or asset_url(name) != f"/static/{version}/{name}":
        return Response("no such file\n", status_code=404, media_type="text/plain")
    headers = {"Cache-Control": _FOR_EVER, "Vary": "Accept-Encoding"}
    media_type = MEDIA_TYPES[Path(name).suffix]
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(_compressed(name), headers={**headers, "Content-Encoding": "gzip"}, media_type=media_type)
    return Response(_content(name), headers=headers, media_type=media_type)


def _own(name: str) -> bytes:
    return (STATIC / name).read_bytes()


def _content(name: str) -> bytes:
    return get_plotlyjs().encode() if name == PLOTLY else _own(name)


@cache
def _compressed(name: str) -> bytes:
    return gzip.compress(_content(name), mtime=0)
