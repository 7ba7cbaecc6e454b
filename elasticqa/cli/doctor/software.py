"""Python and the installed packages; and whether another package hides ours, whose names are common words."""

import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from packaging.requirements import Requirement

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn

NAMES = ("db", "dashboard", "components")
ROOT = Path(__file__).resolve().parents[3]
_LISTED = ("torch", "transformers", "datasets", "torchx", "sqlalchemy", "fastapi")


def check(_: Mapping[str, str]) -> list[Finding]:
    """Check the packages of this environment, and the names as imported by a program started in this directory."""
    # `python -m` and uvicorn search the working directory first.
    names = check_names(ROOT, [str(Path.cwd()), *sys.path], metadata.packages_distributions())
    try:
        requirements = metadata.requires("elasticqa") or []
    except metadata.PackageNotFoundError:
        advice = "install it, so that versions can be compared: pip install -e '.[train]' in the source directory"
        return [warn("packages", "elasticqa is used without being installed", advice), *names]
    return [*check_packages(requirements), *names]


def check_packages(requirements: Iterable[str]) -> list[Finding]:
    """Compare the requirements in a distribution's metadata with the installed versions.

    The extra `train` is checked only if torch is installed; a machine without torch can still show runs.
    """
    parsed = [Requirement(text) for text in requirements]
    base = [requirement for requirement in parsed if _applies(requirement, "")]
    train = [requirement for requirement in parsed if requirement not in base and _applies(requirement, "train")]
    has_torch = _version_of("torch") is not None
    needed = base + (train if has_torch else [])
    problems = [problem for requirement in needed if (problem := _problem(requirement)) is not None]
    python = f"Python {platform.python_version()} ({sys.executable})"
    if problems:
        advice = f"pip install --upgrade 'elasticqa{'[train]' if has_torch else ''}'"
        findings = [fail("packages", f"{python}: {'; '.join(problems)}", advice)]
    else:
        versions = [f"{name} {version}" for name in _LISTED if (version := _version_of(name)) is not None]
        findings = [ok("packages", f"{python}, {len(needed)} packages in range: {', '.join(versions)}")]
    if train and not has_torch:
        advice = "pip install 'elasticqa[train]', unless this machine only shows runs"
        findings.append(warn("packages", "torch is not installed, so this machine cannot train", advice))
    return findings


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _problem(requirement: Requirement) -> str | None:
    version = _version_of(requirement.name)
    if version is None:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} is {version}, needed is {requirement.specifier}"
    return None


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_names(root: Path, search_path: Sequence[str], distributions: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Return which of our packages are hidden by, or mixed with, others; ``root`` is the directory of ours."""
    findings = []
    for name in NAMES:
        place = _location(name, search_path)
        if place is not None and place.parent != root:
            findings.append(_hidden(name, place, root))
        others = sorted(set(distributions.get(name, ())) - {"elasticqa"})
        if others:
            advice = f"pip uninstall {' '.join(others)}, or give elasticqa an environment of its own"
            found = f"`{name}` is also installed by {', '.join(others)}: files of both may be mixed"
            findings.append(warn("names", found, advice))
    return findings or [ok("names", f"{', '.join(NAMES)} are those in {root}")]


def _location(name: str, search_path: Sequence[str]) -> Path | None:
    """Return the package directory or module file that ``import name`` loads, or None.

    A directory without `__init__.py` hides nothing: a package later on the path wins.
    """
    spec = PathFinder.find_spec(name, list(search_path))
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin).resolve()
    return origin.parent if spec.submodule_search_locations else origin


def _hidden(name: str, place: Path, root: Path) -> Finding:
    if (place.parent / "elasticqa" / "cli").is_dir():
        found = f"`{name}` belongs to another copy of elasticqa, {place.parent}; this command runs {root}"
        return warn("names", found, f"leave {place.parent}, or install that copy: pip install -e {place.parent}")
    found = f"`{name}` is {place} and hides ours in {root}"
    advice = "start from another directory, rename that one, remove it from PYTHONPATH, or uninstall its package"
    return fail("names", found, advice)
