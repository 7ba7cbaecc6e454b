"""What the pages say can be typed, followed and found."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from elasticqa.cli.main import COMMANDS, usage
from elasticqa.config.command_line import parse_config
from tests.support.paths import REPOSITORY

PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *(REPOSITORY / "benchmarks").glob("*.md"),
]
_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def commands() -> list[tuple[Path, str]]:
    """Return every command of every page, continued lines joined and comments left out."""
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
    while "=" in words[0]:  # variables set for one command
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
        assert program in KNOWN_PROGRAMS, f"{page.name}: {command!r} is not checked by this test: add a way to check it"


KNOWN_PROGRAMS = {
    "cd", "curl", "docker", "export", "git", "module",
    "pytest", "sbatch", "scontrol", "source", "tensorboard", "uvicorn",
}  # fmt: skip
"""Programs of others that the pages may name."""


def torchx(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the torchx of this environment from the repository's root."""
    program = Path(sys.executable).with_name("torchx")
    return subprocess.run([str(program), *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
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


def test_option_table_is_fresh() -> None:
    script = REPOSITORY / "scripts" / "options_table.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_readme_names_every_command_or_says_there_are_others() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert all(name in usage() for name in COMMANDS)
    assert {name for name in ("train", "predict", "runs", "doctor") if f"`{name}`" not in readme} == set()
