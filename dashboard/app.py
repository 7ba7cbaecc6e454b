"""The FastAPI application: `uvicorn dashboard.app:app`."""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response

from dashboard.ingest_thread import ingest_thread
from dashboard.rendering.responses import error_response, is_json_address, load_templates, render
from dashboard.routes import (
    api,
    assets,
    health,
    predictions,
    profile,
    profiler,
    run,
    run_figures,
    runs,
    speedup,
    throughput,
)
from dashboard.routes.dependencies import GroupCache
from dashboard.security.login_link import hide_tokens_in_access_log, log_login_link
from dashboard.security.middleware import Login, SecurityMiddleware
from dashboard.security.token_file import load_token
from dashboard.settings import Settings
from db.engine import create_engine_for, migrate
from db.ingest.update import ingest
from db.queries import RunNotFoundError

# Include `profile` before `run_figures`, whose route /figures/runs/{run_id}/{name}.json also matches profile.json.
PAGES = (runs, run, profile, predictions, speedup, throughput, profiler, run_figures, api, health, assets)


def create_app(settings: Settings, clock: Callable[[], float] = time.time) -> FastAPI:
    """Return the application; files and database are opened when it starts.

    The clock returns Unix seconds; it decides which runs are lost.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if settings.is_auth_on:
            token = load_token(settings.token_file)
            app.state.login = Login(token)
            hide_tokens_in_access_log()
            log_login_link(token)
        app.state.engine = create_engine_for(settings.database_url)
        migrate(app.state.engine)
        ingest_new_lines = partial(
            ingest, app.state.engine, settings.runs_dir, remove_deleted=settings.is_home_database
        )
        with ingest_thread(app.state.engine, ingest_new_lines, settings.ingest_interval_s):
            yield
        app.state.engine.dispose()

    app = FastAPI(
        title="elasticqa",
        summary="The record of training runs.",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.login = None
    app.state.clock = clock
    app.state.group_cache = GroupCache()
    app.state.runs_dir = settings.runs_dir
    app.state.templates = load_templates()
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=6)
    app.add_middleware(
        SecurityMiddleware,
        hosts=settings.hosts,
        login=lambda: app.state.login,
        unauthorized=_login_page,
    )
    for page in PAGES:
        app.include_router(page.router)
    app.add_exception_handler(RunNotFoundError, _run_not_found)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_address)
    return app


def _login_page(request: Request) -> Response:
    if is_json_address(request):
        message = "send the token of $ELASTICQA_HOME/dashboard-token as a bearer token"
        response = error_response(request, 401, "Login", message)
    else:
        has_token = "token" in request.query_params
        response = render(request, "login.html", {"has_token": has_token}, status_code=401)
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _run_not_found(request: Request, error: Exception) -> Response:
    return error_response(request, 404, "Run not found", str(error))


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(request, error.status_code, "Page not available", f"{error.detail}: {request.url.path}")


def _invalid_address(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = first["loc"][-1]
    return error_response(request, 422, "Invalid address", f"{field}={first['input']!r}: {first['msg']}")


app = create_app(Settings.from_environ(os.environ))
