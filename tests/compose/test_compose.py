"""docker-compose.yml on a real engine: private, without root and torch, and rebuilt from the journals."""

import json
import re
import stat
from typing import Any

import httpx
import pytest

from tests.support.compose_stack import OWNER, PASSWORD, Stack
from tests.support.journals import write_run
from tests.support.processes import until

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    # The first test builds images from packages of two registries.
    pytest.mark.timeout(1500),
]


PATIENCE_S = 60.0


def recorded_runs(stack: Stack) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {stack.token}"}
    answer = httpx.get(f"{stack.url}/api/runs", params={"limit": 1000}, headers=headers, timeout=PATIENCE_S)
    answer.raise_for_status()
    return {run["run_id"]: run for run in answer.json()["runs"]}


def wait_for_run(stack: Stack, run_id: str) -> dict[str, Any]:
    def finished() -> dict[str, Any] | None:
        run: dict[str, Any] = recorded_runs(stack).get(run_id, {})
        return run if run.get("status") == "finished" else None

    return until(finished, f"the end of run {run_id} in the database", 30)


def containers(stack: Stack) -> dict[str, Any]:
    ids = stack.compose("ps", "--all", "--quiet").stdout.split()
    facts = stack.docker("inspect", *ids).stdout
    return {item["Config"]["Labels"]["com.docker.compose.service"]: item for item in json.loads(facts)}


def test_services_are_healthy_and_the_migration_has_ended(stack: Stack) -> None:
    states = {name: item["State"] for name, item in containers(stack).items()}
    assert states["db"]["Health"]["Status"] == "healthy"
    assert states["dashboard"]["Health"]["Status"] == "healthy"
    assert (states["migrate"]["Status"], states["migrate"]["ExitCode"]) == ("exited", 0)
    assert httpx.get(f"{stack.url}/healthz", timeout=PATIENCE_S).json()["status"] == "ok"


def test_image_has_no_torch(stack: Stack) -> None:
    assert "No module named 'torch'" in stack.inside("python", "-c", "import torch", expected=1).stderr
    stack.inside("python", "-c", "import dashboard.app, elasticqa.cli.main, db.ingest.update, psycopg")


def test_containers_run_without_root_capabilities_and_writable_system(stack: Stack) -> None:
    facts = containers(stack)
    for name in ("dashboard", "migrate"):
        assert facts[name]["Config"]["User"] == f"{OWNER}:{OWNER}"
    for item in facts.values():
        assert item["HostConfig"]["ReadonlyRootfs"] is True
        assert item["HostConfig"]["CapDrop"] == ["ALL"]
        assert item["HostConfig"]["SecurityOpt"] == ["no-new-privileges:true"]
    status = stack.inside("cat", "/proc/1/status").stdout
    assert re.findall(r"^Uid:\t(\d+)", status, re.M) == [str(OWNER)]
    assert re.findall(r"^Cap(?:Prm|Eff|Bnd):\t(\w+)$", status, re.M) == ["0" * 16] * 3
    assert re.findall(r"^NoNewPrivs:\t(\d)$", status, re.M) == ["1"]
    for path in ("/opt/elasticqa/x", "/usr/x", "/var/lib/elasticqa/runs/x"):
        assert "Read-only file system" in stack.inside("touch", path, expected=1).stderr


def test_database_server_does_not_run_as_root(stack: Stack) -> None:
    owner = stack.compose("exec", "-T", "db", "stat", "--format=%U", "/proc/1").stdout.strip()
    assert owner == "postgres"


def test_port_is_published_on_this_machine_only(stack: Stack) -> None:
    published = {name: item["NetworkSettings"]["Ports"] for name, item in containers(stack).items()}
    bindings = [binding for ports in published.values() for bound in ports.values() for binding in bound or []]
    assert bindings == [{"HostIp": "127.0.0.1", "HostPort": str(stack.port)}]


def test_link_in_the_log_opens_the_pages(stack: Stack) -> None:
    log = stack.compose("logs", "--no-color", "dashboard").stdout
    link = re.findall(r"Dashboard: (\S+)", log)[-1]
    assert link == f"{stack.url}/?token={stack.token}"
    with httpx.Client(follow_redirects=True, timeout=PATIENCE_S) as visitor:
        assert visitor.get(f"{stack.url}/runs").status_code == 401
        assert visitor.get(link).status_code == 200
        page = visitor.get(f"{stack.url}/runs")
    assert page.status_code == 200
    assert "reported-squad" in page.text


def test_token_belongs_to_the_owner_of_the_home(stack: Stack) -> None:
    facts = (stack.home / "dashboard-token").stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (OWNER, 0o600)


def test_run_written_outside_is_ingested(stack: Stack) -> None:
    write_run(stack.home / "runs", "written-outside", num_steps=20)
    run = wait_for_run(stack, "written-outside")
    assert run["status"] == "finished"
    assert "written-outside" in stack.inside("elasticqa", "runs").stdout


def test_database_requires_the_password(stack: Stack) -> None:
    without = stack.compose("exec", "-T", "--env=PGPASSFILE=/absent", "dashboard", "elasticqa", "ingest", expected=2)
    assert "no password supplied" in without.stderr


def test_password_is_in_no_environment_command_or_log(stack: Stack) -> None:
    environment = stack.inside("cat", "/proc/1/environ", "/proc/1/cmdline").stdout
    assert "ELASTICQA_DB_PASSWORD_FILE=" in environment
    for place in (environment, json.dumps(containers(stack)), stack.compose("logs", "--no-color").stdout):
        assert PASSWORD not in place
        assert json.dumps(PASSWORD)[1:-1] not in place
    assert stack.inside("stat", "--format=%a %u", "/tmp/pgpass").stdout.split() == ["600", str(OWNER)]


def test_deleting_the_database_loses_nothing(stack: Stack) -> None:
    write_run(stack.home / "runs", "kept", num_steps=20)
    wait_for_run(stack, "kept")
    before = recorded_runs(stack)
    stack.compose("down", "--volumes")
    stack.compose("up", "--wait")
    assert recorded_runs(stack) == before


def test_password_file_of_another_user_is_refused(stack: Stack) -> None:
    result = stack.compose("run", "--rm", "-T", "--no-deps", "--user=10002", "migrate", expected=2)
    assert "ELASTICQA_UID must be the owner of the password file" in result.stderr
