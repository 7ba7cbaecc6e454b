"""ASGI middleware in front of all routes: checks host name and login, adds security headers to every response."""

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

EMPTY_STYLE_SHEET = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
"""SHA-256 of the empty string. Plotly adds an empty <style> and fills it through CSSOM, which the policy allows."""

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' '{EMPTY_STYLE_SHEET}'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
OPEN_PATHS = ("/healthz", "/static/")
_COOKIE_AGE_S = 30 * 24 * 3600


class Login:
    """The login token and the login cookie derived from it."""

    def __init__(self, token: str) -> None:
        self._token = token
        # Derive the cookie's name from the token: two dashboards on one host share cookies, whatever their ports.
        self.cookie_name = "elasticqa-" + self._derive("cookie name")[:12]
        self.cookie_value = self._derive("session")

    def _derive(self, purpose: str) -> str:
        return hmac.new(self._token.encode(), f"elasticqa dashboard {purpose}".encode(), hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        """Compare with the token, in constant time."""
        return hmac.compare_digest(given.encode(), self._token.encode())

    def is_logged_in(self, request: Request) -> bool:
        """Return whether a request has the token as a bearer token, or the login cookie."""
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(credentials.strip()):
            return True
        cookie = request.cookies.get(self.cookie_name, "")
        return hmac.compare_digest(cookie.encode(), self.cookie_value.encode())

    def redirect_with_cookie(self, request: Request) -> Response:
        """Return a redirect that sets the login cookie and removes the token from the address."""
        kept = [(name, value) for name, value in parse_qsl(request.url.query) if name != "token"]
        # Redirect to the path only: the Host header must not decide where the browser goes. Keep one leading slash,
        # since browsers read the part after two slashes as a host.
        target = "/" + request.url.path.lstrip("/\\") + (f"?{urlencode(kept)}" if kept else "")
        response = RedirectResponse(target, status_code=303)
        response.set_cookie(
            self.cookie_name, self.cookie_value, max_age=_COOKIE_AGE_S, httponly=True, samesite="strict"
        )
        return response


def is_allowed_host(host: str, configured: Sequence[str]) -> bool:
    """Return whether a Host header (name or address, with or without port) is allowed.

    A defence against DNS rebinding: a foreign site can point its own name at 127.0.0.1 and could then read the
    responses, but its name is in the Host header. A numeric address needs no DNS and cannot be rebound.
    """
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    name = name.removesuffix(".")
    machine = socket.gethostname().lower()
    is_named = name in ("localhost", machine, machine.partition(".")[0], *configured)
    return is_named or name.endswith(".localhost") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class SecurityMiddleware:
    """Answers requests with a wrong host name or without login itself; passes on all others."""

    app: ASGIApp
    hosts: Sequence[str]
    """Allowed host names, besides the machine's own."""
    login: Callable[[], Login | None]
    """Returns the login, or None if none is required."""
    unauthorized: Callable[[Request], Response]
    """Returns the response to a request without a valid login."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        response = self._refusal(Request(scope)) or self.app
        await response(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response in place of the page, or None if the request may see the page."""
        host = request.headers.get("host", "")
        if not is_allowed_host(host, self.hosts):
            return PlainTextResponse(
                f"Host {host[:100]!r} is not an allowed name of this dashboard. Use localhost or its numeric address, "
                "or add the name to ELASTICQA_DASHBOARD_HOSTS.\n",
                status_code=400,
            )
        login = self.login()
        if login is None or request.url.path.startswith(OPEN_PATHS):
            return None
        token = request.query_params.get("token")
        if token is not None and request.method == "GET" and login.is_token(token):
            return login.redirect_with_cookie(request)
        return None if login.is_logged_in(request) else self.unauthorized(request)
