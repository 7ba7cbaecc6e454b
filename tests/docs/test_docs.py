"""Commands, links and tables of the documentation agree with the code."""

import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from db.journal_schema import LINES, Line
from elasticqa.cli.main import COMMANDS
from elasticqa.config.command_line import parse_config
from tests.support.paths import REPOSITORY

PAGES = [page for folder in (".", "docs", "benchmarks") for page in sorted((REPOSITORY / folder).glob("*.md"))]
_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FILE = re.compile(r"`((?:benchmarks|components|dashboard|db|docker|docs|elasticqa|scripts|tests)/[\w./-]*)`")


def commands() -> list[tuple[Path, str]]:
    """Return every command of every page, with continued lines joined and without comments."""
    found = []
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                if words := shlex.split(line, comments=True):
                    found.append((page, shlex.join(words)))
    return found


@pytest.mark.parametrize(("page", "command"), [pytest.param(p, c, id=f"{p.name}: {c}") for p, c in commands()])
def test_command_of_a_page_is_accepted(page: Path, command: str) -> None:
    words = shlex.split(command)
    while "=" in words[0]:  # a variable for this command
        words = words[1:]
    program, rest = Path(words[0]).name, words[1:]
    if program == "torchx" and rest[0] == "run" and rest[-1] != "...":
        options = rest[1:]
        trainer = options[options.index("--") + 1 :] if "--" in options else []
        done = torchx("run", "--dryrun", *options)
        assert done.returncode == 0, done.stderr
        parse_config(trainer)
    elif program == "torchx":
        assert torchx(rest[0], "--help").returncode == 0
    elif program == "elasticqa":
        assert rest[0] in COMMANDS or rest == ["--help"]
        if rest[0] == "train":
            parse_config(rest[1:])
    elif program in ("bash", "python"):
        assert rest[0].startswith("-m") or (REPOSITORY / rest[0]).is_file()
    else:
        assert program in OTHER_PROGRAMS, f"{page.name}: {command!r} is not checked by this test: add a way to check it"


OTHER_PROGRAMS = {
    "cd", "curl", "docker", "export", "git", "lint-imports", "module", "mypy", "pip",
    "pytest", "ruff", "sbatch", "scontrol", "source", "tensorboard", "uvicorn",
}  # fmt: skip
"""Programs that are not part of this project."""


def torchx(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run torchx of this environment in the root of the repository."""
    program = Path(sys.executable).with_name("torchx")
    return subprocess.run([str(program), *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_link_targets_of_a_page_exist(page: Path) -> None:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {link}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_by_a_page_exist(page: Path) -> None:
    named = set(_FILE.findall(page.read_text(encoding="utf-8")))
    assert {name for name in named if not (REPOSITORY / name).exists()} - MADE_BY_USERS == set()


MADE_BY_USERS = {"docker/secrets/db-password"}


def test_option_table_is_up_to_date() -> None:
    script = REPOSITORY / "scripts" / "options_table.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", LINES)
def test_journal_page_explains_every_key_of_a_line(kind: str) -> None:
    page = (REPOSITORY / "docs" / "journal.md").read_text(encoding="utf-8")
    section = page.partition(f"### `{kind}`\n")[2].partition("\n#")[0]
    keys = {field.name for field in fields(LINES[kind])} - {field.name for field in fields(Line)}
    assert {key for key in keys if f"`{key}`" not in section} == set()


def test_readme_names_the_main_commands() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert {name for name in ("train", "predict", "runs", "doctor") if f"`{name}`" not in readme} == set()


_NAMED_IN_FILE = re.compile(r"`((?:elasticqa|db|dashboard|components)/[\w/]+\.py)`\s+`(\w+)(?:\.(\w+))?`")


def test_names_that_the_architecture_page_gives_to_files_are_in_them() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = _NAMED_IN_FILE.findall(page)
    assert len(found) > 20
    for file, *names in found:
        source = (REPOSITORY / file).read_text(encoding="utf-8")
        for name in filter(None, names):
            assert re.search(rf"\b(?:def|class) {name}\b", source), f"{name} is not in {file}"
