"""Who may see pages, and what a page may do: host check, login, and security headers on every answer."""

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterable, MutableMapping
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

EMPTY_STYLE_SHEET = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
"""Digest of the empty text. Plotly adds an empty <style> and fills it by CSSOM, which a policy allows."""

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
    """Knows the token and what follows from it."""

    def __init__(self, token: str) -> None:
        self._token = token
        # Cookies are shared by all ports of a host: a name of its own keeps two dashboards apart.
        self.cookie_name = "elasticqa-" + self._derive("cookie name")[:12]
        self.cookie_value = self._derive("session")

    def _derive(self, purpose: str) -> str:
        return hmac.new(self._token.encode(), f"elasticqa dashboard {purpose}".encode(), hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(given.encode(), self._token.encode())

    def admits(self, request: Request) -> bool:
        """Tell whether a request carries the token as a bearer, or the cookie that stands for it."""
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(credentials.strip()):
            return True
        cookie = request.cookies.get(self.cookie_name, "")
        return hmac.compare_digest(cookie.encode(), self.cookie_value.encode())

    def welcome(self, request: Request) -> Response:
        """Return the redirect that sets the cookie and takes the token out of the address."""
        kept = [(name, value) for name, value in parse_qsl(request.url.query) if name != "token"]
        # The path alone: a Host header must not decide where a browser goes next. One slash, because a
        # browser takes the part after two of them for a host.
        target = "/" + request.url.path.lstrip("/\\") + (f"?{urlencode(kept)}" if kept else "")
        response = RedirectResponse(target, status_code=303)
        response.set_cookie(
            self.cookie_name, self.cookie_value, max_age=_COOKIE_AGE_S, httponly=True, samesite="strict"
        )
        return response


class HostRule:
    """Which names a browser may use for this server.

    A page of a foreign site can point its own name at 127.0.0.1 (DNS rebinding) and would then read the
    answers; its name betrays it in the Host header. An address in digits needs no DNS: it cannot be rebound.
    """

    def __init__(self, configured: Iterable[str]) -> None:
        machine = socket.gethostname().lower()
        self._names = frozenset({"localhost", machine, machine.partition(".")[0], *configured})

    def allows(self, host: str) -> bool:
        """Tell whether the value of a Host header (name or address, with or without port) is ours."""
        name = host.strip().lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        name = name.removesuffix(".")
        return name in self._names or name.endswith(".localhost") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """ASGI middleware in front of every page."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: HostRule,
        login: Callable[[], Login | None],
        refuse: Callable[[Request], Response],
    ) -> None:
        """Guard an application.

        Args:
            app: what is guarded.
            hosts: which Host headers are answered.
            login: returns the login in force, or None when everybody may come in.
            refuse: makes the answer for a visitor without a valid login.
        """
        self._app = app
        self._hosts = hosts
        self._login = login
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message)
            await send(message)

        answer = self._answer(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Return what to say instead of the page, or None when the visitor may have it."""
        host = request.headers.get("host", "")
        if not self._hosts.allows(host):
            return PlainTextResponse(
                f"Host {host[:100]!r} is not a name of this dashboard. Ask for it as localhost or by its "
                "address, or list the name in ELASTICQA_DASHBOARD_HOSTS.\n",
                status_code=400,
            )
        login = self._login()
        if login is None or request.url.path.startswith(OPEN_PATHS):
            return None
        token = request.query_params.get("token")
        if token is not None and request.method == "GET" and login.is_token(token):
            return login.welcome(request)
        return None if login.admits(request) else self._refuse(request)


def _add_headers(message: MutableMapping[str, object]) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("Cache-Control", "no-store")
