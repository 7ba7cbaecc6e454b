"""Responses of the routes: a page from a template, a figure as JSON, an error as a page or as JSON."""

import shlex
from collections.abc import Mapping
from inspect import getmembers, isfunction
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dashboard.rendering.assets import asset_url, map_style_ids
from dashboard.text import formats, labels

TEMPLATES = Path(__file__).parents[1] / "templates"


def load_templates() -> Jinja2Templates:
    """Return the templates, which escape all values; every function of `text/formats.py` is a filter."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(asset_url=asset_url, map_style_ids=map_style_ids, labels=labels, unknown=formats.UNKNOWN)
    environment.filters.update(getmembers(formats, isfunction), shell_word=shlex.quote)
    return Jinja2Templates(env=environment)


def render(request: Request, template: str, context: Mapping[str, Any], status_code: int = 200) -> Response:
    """Return the page that a template makes of the context."""
    templates: Jinja2Templates = request.app.state.templates
    return templates.TemplateResponse(request, template, dict(context), status_code=status_code)


def figure_response(figure: go.Figure) -> Response:
    """Return a figure as the JSON that `static/charts.js` draws."""
    return Response(figure.to_json(), media_type="application/json")


def is_json_address(request: Request) -> bool:
    """Return whether the request's address answers with JSON."""
    return request.url.path.startswith(("/api", "/figures"))


def error_response(request: Request, status_code: int, title: str, message: str) -> Response:
    """Return an error as JSON if the address answers with JSON, else as a page."""
    if is_json_address(request):
        return JSONResponse({"detail": message}, status_code)
    return render(request, "error.html", {"title": title, "message": message}, status_code)
