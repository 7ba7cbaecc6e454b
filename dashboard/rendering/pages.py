"""Templates to pages: the functions that templates may call, and answers that are no page of their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dashboard.rendering.assets import asset_url, map_style_ids
from dashboard.text import formats, labels

TEMPLATES = Path(__file__).parents[1] / "templates"


def templates() -> Jinja2Templates:
    """Return the templates; everything that they print is escaped."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(asset_url=asset_url, map_style_ids=map_style_ids, labels=labels, unknown=formats.UNKNOWN)
    environment.filters.update(
        ago=formats.ago,
        breakable=formats.breakable,
        count=formats.count,
        duration=formats.duration,
        fact=formats.fact,
        fixed=formats.fixed,
        machine_moment=formats.machine_moment,
        moment=formats.moment,
        p_value=formats.p_value,
        rate=formats.rate,
        setting=formats.setting,
        shell_word=formats.shell_word,
        short=formats.short,
        short_device=formats.short_device,
        short_id=formats.short_id,
        size=formats.size,
        value=formats.value,
    )
    return Jinja2Templates(env=environment)


def page(request: Request, template: str, context: Mapping[str, Any], status_code: int = 200) -> Response:
    """Return a page made by the application's templates."""
    made: Jinja2Templates = request.app.state.templates
    return made.TemplateResponse(request, template, dict(context), status_code=status_code)


def wants_data(request: Request) -> bool:
    """Tell whether an address answers with JSON."""
    return request.url.path.startswith(("/api", "/figures"))


def problem(request: Request, status_code: int, title: str, message: str) -> Response:
    """Return an answer that says what is wrong: JSON where the address gives data, else a page."""
    if wants_data(request):
        return JSONResponse({"detail": message}, status_code)
    return page(request, "problem.html", {"title": title, "message": message}, status_code)
