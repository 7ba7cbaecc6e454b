"""Whether `db`, `dashboard` and `components` are ours: such plain names have other owners too."""

import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn

NAMES = ("db", "dashboard", "components")
ROOT = Path(__file__).resolve().parents[3]


def check(_: Mapping[str, str]) -> list[Finding]:
    """Check the names as this process sees them, and as one that is started in this directory does."""
    # Python puts the directory it is started in before all others for `python -m`, and so does uvicorn.
    return check_names(ROOT, [str(Path.cwd()), *sys.path], metadata.packages_distributions())


def check_names(root: Path, search_path: Sequence[str], distributions: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Return what is in the way of our packages.

    Args:
        root: directory that holds our packages.
        search_path: directories that Python looks into, in this order.
        distributions: installed distributions by top-level name.
    """
    findings = []
    for name in NAMES:
        place = _place(name, search_path)
        if place is not None and place.parent != root:
            findings.append(_hidden(name, place, root))
        others = sorted(set(distributions.get(name, ())) - {"elasticqa"})
        if others:
            advice = f"pip uninstall {' '.join(others)}, or give elasticqa an environment of its own"
            found = f"`{name}` is also installed by {', '.join(others)}: files of both may be mixed"
            findings.append(warn("names", found, advice))
    return findings or [ok("names", f"{', '.join(NAMES)} are those in {root}")]


def _place(name: str, search_path: Sequence[str]) -> Path | None:
    """Return the package directory or module file that an import takes, or None if no directory has one.

    A directory without `__init__.py` hides nothing: a package further down the path wins.
    """
    spec = PathFinder.find_spec(name, list(search_path))
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin).resolve()
    return origin.parent if spec.submodule_search_locations else origin


def _hidden(name: str, place: Path, root: Path) -> Finding:
    if (place.parent / "elasticqa" / "cli").is_dir():
        found = f"`{name}` is that of another copy of elasticqa, {place.parent}; this command runs {root}"
        return warn("names", found, f"leave {place.parent}, or install that copy: pip install -e {place.parent}")
    found = f"`{name}` is {place} and hides ours in {root}"
    advice = "start from another directory, rename that one, take it from PYTHONPATH, or uninstall what brought it"
    return fail("names", found, advice)
