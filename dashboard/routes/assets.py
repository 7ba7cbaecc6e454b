"""Static files of the pages below /static."""

from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dashboard.rendering.assets import PLOTLY, STATIC, asset_url, compressed, content

MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
router = APIRouter(include_in_schema=False)


@router.get("/static/{version}/{name}")
def asset(request: Request, version: str, name: str) -> Response:
    """Return a static file, compressed if the browser accepts gzip; 404 for an unknown name or version."""
    names = {PLOTLY, *(path.name for path in STATIC.iterdir())}
    if name not in names or asset_url(name) != f"/static/{version}/{name}":
        return Response("no such file\n", status_code=404, media_type="text/plain")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    media_type = MEDIA_TYPES[Path(name).suffix]
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(compressed(name), headers={**headers, "Content-Encoding": "gzip"}, media_type=media_type)
    return Response(content(name), headers=headers, media_type=media_type)
