"""Who may see pages, and what a page may do: host check, login, and security headers on every answer."""

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
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

    def admits(self, headers: Headers) -> bool:
        """Tell whether a request carries the token as a bearer, or the cookie that stands for it."""
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(credentials.strip()):
            return True
        cookies = SimpleCookie[str]()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            return False
        cookie = cookies.get(self.cookie_name)
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self.cookie_value.encode())

    def welcome(self, request: Request) -> Response:
        """Return the redirect that sets the cookie and takes the token out of the address."""
        kept = [(name, value) for name, value in parse_qsl(request.url.query) if name != "token"]
        # The path alone: a Host header must not decide where a browser goes next. One slash, because a browser
        # takes the part after two of them for a host.
        target = "/" + request.url.path.lstrip("/\\") + (f"?{urlencode(kept)}" if kept else "")
        response = RedirectResponse(target, status_code=303)
        response.set_cookie(
            self.cookie_name, self.cookie_value, max_age=_COOKIE_AGE_S, httponly=True, samesite="strict"
        )
        return response
