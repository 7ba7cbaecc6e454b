"""The application: `uvicorn dashboard.app:app`."""

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

from dashboard.background.group_cache import GroupCache
from dashboard.background.ingest_thread import IngestLoop
from dashboard.rendering.pages import page, problem, templates, wants_data
from dashboard.routes import api, figures, health, predictions, profile, profiler, run, runs, speedup, throughput
from dashboard.security.access import Guard, HostRule, Login
from dashboard.security.login_link import announce, hide_tokens_in_access_log
from dashboard.security.token_file import load_token
from dashboard.settings import Settings
from db.engine import create_engine_for, migrate
from db.ingest.update import ingest
from db.queries import RunNotFoundError


def create_app(settings: Settings, clock: Callable[[], float] = time.time) -> FastAPI:
    """Return the application; it touches neither disk nor database before it is started.

    Args:
        settings: where the record lies and who may see it.
        clock: returns Unix seconds; decides which runs are lost.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if settings.is_auth_on:
            token = load_token(settings.token_file)
            app.state.login = Login(token)
            hide_tokens_in_access_log()
            announce(token)
        app.state.engine = create_engine_for(settings.database_url)
        migrate(app.state.engine)
        catch_up = partial(ingest, app.state.engine, settings.runs_dir, is_own=settings.is_database_own)
        with IngestLoop(app.state.engine, catch_up, settings.ingest_interval_s):
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
    app.state.groups = GroupCache()
    app.state.runs_dir = settings.runs_dir
    app.state.templates = templates()
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=6)
    app.add_middleware(Guard, hosts=HostRule(settings.hosts), login=lambda: app.state.login, refuse=_ask_for_login)
    for part in (runs, run, profile, predictions, speedup, throughput, profiler, figures, api, health):
        app.include_router(part.router)
    app.add_exception_handler(RunNotFoundError, _not_found)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _bad_address)
    return app


def _ask_for_login(request: Request) -> Response:
    if wants_data(request):
        response = problem(request, 401, "Login", "send the token of $ELASTICQA_HOME/dashboard-token as a bearer token")
    else:
        was_given = "token" in request.query_params
        response = page(request, "login.html", {"was_given": was_given}, status_code=401)
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _not_found(request: Request, error: Exception) -> Response:
    return problem(request, 404, "No such run", str(error))


def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(request, error.status_code, "Not here", f"{error.detail}: {request.url.path}")


def _bad_address(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()[0]
    field = found["loc"][-1]
    return problem(request, 422, "This address cannot be read", f"{field}={found['input']!r}: {found['msg']}")


app = create_app(Settings.from_environ(os.environ))
