"""Python and the packages, compared with what this release asks for."""

import platform
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata

from packaging.requirements import Requirement

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn

OLDEST_PYTHON = (3, 11)
_NAMED = ("torch", "transformers", "datasets", "torchx", "sqlalchemy", "fastapi")


def check(_: Mapping[str, str]) -> list[Finding]:
    """Check the running Python and the installed packages."""
    try:
        requirements = metadata.requires("elasticqa") or []
    except metadata.PackageNotFoundError:
        advice = "install it, so that versions can be compared: pip install -e '.[train]' in the source directory"
        return [check_python(sys.version_info[:2]), warn("packages", "elasticqa runs without being installed", advice)]
    return [check_python(sys.version_info[:2]), *check_packages(requirements)]


def check_python(version: tuple[int, ...]) -> Finding:
    """Return whether (major, minor) is new enough."""
    found = f"Python {platform.python_version()}, {sys.executable}"
    if version < OLDEST_PYTHON:
        asked = ".".join(map(str, OLDEST_PYTHON))
        return fail("python", f"{found}, too old", f"make a virtual environment with Python {asked} or newer")
    return ok("python", found)


def check_packages(requirements: Iterable[str]) -> list[Finding]:
    """Compare requirements, as a distribution's metadata has them, with what is installed.

    The extra `train` is checked as soon as torch is there; without torch this machine can still show runs.
    """
    parsed = [Requirement(text) for text in requirements]
    base = [asked for asked in parsed if _applies(asked, "")]
    train = [asked for asked in parsed if asked not in base and _applies(asked, "train")]
    findings = []
    has_torch = _version_of("torch") is not None
    asked_for = base + (train if has_torch else [])
    problems = [problem for asked in asked_for if (problem := _problem(asked)) is not None]
    if problems:
        advice = f"pip install --upgrade 'elasticqa{'[train]' if has_torch else ''}'"
        findings.append(fail("packages", "; ".join(problems), advice))
    else:
        named = [f"{name} {version}" for name in _NAMED if (version := _version_of(name)) is not None]
        findings.append(ok("packages", f"{len(asked_for)} packages in range: {', '.join(named)}"))
    if train and not has_torch:
        advice = "pip install 'elasticqa[train]', unless this machine only shows runs"
        findings.append(warn("packages", "torch is not installed, so nothing can be trained here", advice))
    return findings


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _problem(requirement: Requirement) -> str | None:
    version = _version_of(requirement.name)
    if version is None:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} is {version}, asked for is {requirement.specifier}"
    return None


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
