"""Login, token file, allowed host names, and security headers."""

import base64
import hashlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from dashboard.app import create_app
from dashboard.security.login_link import hide_tokens_in_access_log, login_link
from dashboard.security.middleware import EMPTY_STYLE_SHEET, is_allowed_host
from dashboard.security.token_file import TokenError, load_token
from dashboard.settings import Settings, SettingsError


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path / 'record.db'}"
    return Settings(home=tmp_path, database_url=url, hosts=("runs.example.org",), ingest_interval_s=3600)


@pytest.fixture
def visitor(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), base_url="http://localhost", follow_redirects=False) as client:
        yield client


@pytest.fixture
def token(visitor: TestClient, settings: Settings) -> str:
    assert visitor
    return settings.token_file.read_text().strip()


def test_visitor_without_token_sees_how_to_log_in(visitor: TestClient) -> None:
    answer = visitor.get("/runs")
    assert answer.status_code == 401
    assert "the link that the dashboard printed" in answer.text
    assert answer.headers["www-authenticate"] == "Bearer"


def test_api_refuses_in_json(visitor: TestClient) -> None:
    answer = visitor.get("/api/runs")
    assert answer.status_code == 401
    assert "bearer token" in answer.json()["detail"]


def test_link_sets_a_cookie_and_removes_the_token_from_the_address(visitor: TestClient, token: str) -> None:
    answer = visitor.get("/runs", params={"status": "lost & found", "token": token})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/runs?status=lost+%26+found"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert token not in cookie
    assert visitor.get("/runs").status_code == 200


def test_wrong_token_is_reported(visitor: TestClient) -> None:
    answer = visitor.get("/runs", params={"token": "guess"})
    assert answer.status_code == 401
    assert "not valid for this dashboard" in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["//example.org/x", "/\\example.org", "///example.org"])
def test_login_never_redirects_to_another_host(visitor: TestClient, token: str, path: str) -> None:
    answer = visitor.get(f"http://localhost{path}", params={"token": token})
    assert answer.status_code == 303
    location = answer.headers["location"]
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


def test_forged_cookie_is_refused(visitor: TestClient, token: str) -> None:
    visitor.get("/", params={"token": token})
    (name,) = visitor.cookies.keys()
    visitor.cookies.clear()
    for value in (token, "", "é"):
        answer = visitor.get("/runs", headers={b"Cookie": f"{name}={value}".encode()})
        assert answer.status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_bearer_token_opens_the_api(visitor: TestClient, token: str, scheme: str) -> None:
    assert visitor.get("/api/runs", headers={"Authorization": f"{scheme} {token}"}).status_code == 200
    assert visitor.get("/api/runs", headers={"Authorization": f"{scheme} {token}x"}).status_code == 401
    assert visitor.get("/api/runs", headers={"Authorization": "Basic eDp5"}).status_code == 401


def test_health_and_assets_need_no_login(visitor: TestClient) -> None:
    assert visitor.get("/healthz").status_code == 200
    assert visitor.get("/static/none/style.css").status_code == 404


def test_login_can_be_turned_off(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=f"sqlite:///{tmp_path / 'x.db'}", is_auth_on=False)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        assert client.get("/runs").status_code == 200
    assert not settings.token_file.exists()


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "LOCALHOST.", "127.0.0.1:80", "[::1]:8000", "10.1.2.3", "runs.example.org"]
)
def test_own_names_and_addresses_are_allowed(visitor: TestClient, host: str) -> None:
    assert visitor.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""])
def test_foreign_names_are_refused(visitor: TestClient, host: str) -> None:
    answer = visitor.get("/healthz", headers={"Host": host})
    assert (answer.status_code, "ELASTICQA_DASHBOARD_HOSTS" in answer.text) == (400, True)


def test_machines_own_name_is_allowed() -> None:
    assert is_allowed_host(os.uname().nodename, ())


@pytest.mark.parametrize("path", ["/runs", "/healthz", "/api/runs", "/static/x/y", "/nowhere", "/?token=x"])
def test_every_answer_has_the_security_headers(visitor: TestClient, path: str) -> None:
    headers = visitor.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_policy_allows_the_empty_style_sheet_alone() -> None:
    digest = base64.b64encode(hashlib.sha256(b"").digest()).decode()
    assert f"sha256-{digest}" == EMPTY_STYLE_SHEET


def test_token_is_created_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "dashboard-token"
    token = load_token(path)
    assert len(token) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_token(path) == token
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_token_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "dashboard-token"
    load_token(path)
    path.chmod(mode)
    with pytest.raises(TokenError, match=f"has mode {mode:04o}.*delete it"):
        load_token(path)


def test_token_of_another_owner_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    path = tmp_path / "dashboard-token"
    load_token(path)
    os.chown(path, 12345, -1)
    with pytest.raises(TokenError, match="belongs to user id 12345"):
        load_token(path)


@pytest.mark.parametrize("content", ["", "short\n", "x" * 20 + "\x00" * 20])
def test_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "dashboard-token"
    path.touch(0o600)
    path.write_text(content)
    with pytest.raises(TokenError, match="has no token of at least 32"):
        load_token(path)


def test_token_behind_a_link_or_in_a_directory_is_refused(tmp_path: Path) -> None:
    load_token(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "directory").mkdir()
    for name, message in (("link", "cannot be read"), ("directory", "is not a regular file")):
        with pytest.raises(TokenError, match=message):
            load_token(tmp_path / name)


@pytest.mark.parametrize(
    ("argv", "environ", "address"),
    [
        (["uvicorn", "dashboard.app:app"], {}, "http://127.0.0.1:8000"),
        (["uvicorn", "--port=9000"], {"UVICORN_PORT": "1"}, "http://127.0.0.1:9000"),
        (["x"], {"UVICORN_HOST": "node1", "UVICORN_PORT": "1"}, "http://node1:1"),
        (["x", "--host", "::"], {}, "http://[::1]:8000"),
        (["x", "--host", "fd00::2"], {}, "http://[fd00::2]:8000"),
        (["x", "--port"], {}, "http://127.0.0.1:8000"),
    ],
)
def test_link_names_the_address_of_the_server(argv: list[str], environ: dict[str, str], address: str) -> None:
    assert login_link("a-b_c", argv, environ) == f"{address}/?token=a-b_c"


def test_link_is_logged_when_the_server_starts(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "uvicorn.error"), TestClient(create_app(settings)):
        assert f"/?token={settings.token_file.read_text().strip()}" in caplog.text


def test_access_log_has_no_token(caplog: pytest.LogCaptureFixture) -> None:
    hide_tokens_in_access_log()
    hide_tokens_in_access_log()
    access = logging.getLogger("uvicorn.access")
    with caplog.at_level(logging.INFO, "uvicorn.access"):
        access.info('%s - "%s %s" %d', "127.0.0.1", "GET", "/runs?text=x&token=secret", 303)
    assert "secret" not in caplog.text
    assert "/runs?text=x&token=..." in caplog.text
    assert len(access.filters) == 1


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    settings = Settings.from_environ(
        {
            "ELASTICQA_HOME": str(tmp_path),
            "ELASTICQA_DB_URL": "sqlite:///x.db",
            "ELASTICQA_DASHBOARD_AUTH": "off",
            "ELASTICQA_DASHBOARD_HOSTS": "A.example, b.example,",
            "ELASTICQA_DASHBOARD_INGEST_INTERVAL_S": "0.5",
        }
    )
    assert settings == Settings(
        home=tmp_path,
        database_url="sqlite:///x.db",
        is_auth_on=False,
        hosts=("a.example", "b.example"),
        ingest_interval_s=0.5,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ELASTICQA_DASHBOARD_AUTH", "no"),
        ("ELASTICQA_DASHBOARD_AUTH", ""),
        ("ELASTICQA_DASHBOARD_INGEST_INTERVAL_S", "soon"),
        ("ELASTICQA_DASHBOARD_INGEST_INTERVAL_S", "0"),
        ("ELASTICQA_DASHBOARD_INGEST_INTERVAL_S", "nan"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}={value!r}"):
        Settings.from_environ({"ELASTICQA_HOME": str(tmp_path), name: value})
