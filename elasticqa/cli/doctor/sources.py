"""Models and data of the recipes: here already, to be had from the hub, or neither."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from db.storage.home import home_of
from elasticqa.cli.doctor.finding import Finding, ok, warn
from elasticqa.config.recipes import RECIPES
from elasticqa.data.hub import Hub, resolve_model
from elasticqa.data.squad.dataset import resolve_dataset
from elasticqa.errors import ConfigError


@dataclass(frozen=True)
class _NoHub(Hub):
    """A hub that has nothing, so that only what is here can be found."""

    is_offline: bool = False

    def why_unavailable(self, kind: Literal["models", "datasets"], name: str) -> str | None:
        return f"no {kind} here, and not asked for {name}"


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Look for what the recipes read, and ask the hub for what is not here."""
    return check_sources(home_of(environ) / "cache" / "datasets", Hub())


def check_sources(datasets: Path, hub: Hub) -> list[Finding]:
    """Return one finding for each model and data set of the recipes.

    Args:
        datasets: directory of prepared data sets.
        hub: is asked, but nothing is fetched.
    """
    findings = []
    models = {config.model: f"--recipe {name}" for name, config in reversed(RECIPES.items())}
    for model, recipe in models.items():
        place = _place_of_model(model)
        findings.append(
            _finding("model", model, recipe, place, None if place else hub.why_unavailable("models", model))
        )
    data = {config.dataset: f"--recipe {name}" for name, config in reversed(RECIPES.items())}
    for name, recipe in data.items():
        place = _place_of_data(name, datasets)
        findings.append(
            _finding("dataset", name, recipe, place, None if place else hub.why_unavailable("datasets", name))
        )
    return findings


def _finding(kind: str, name: str, recipe: str, place: str | None, reason: str | None) -> Finding:
    if place is not None:
        return ok(kind, f"{name} is here: {place}")
    if reason is None:
        return ok(kind, f"{name} can be fetched; `elasticqa prepare {recipe}` does so for nodes without a network")
    advice = (
        f"run `elasticqa prepare {recipe}` where the hub can be reached and bring its directories here, "
        f"or give --{kind} a path"
    )
    return warn(kind, f"{name} is not here: {reason}", advice)


def _place_of_model(name: str) -> str | None:
    try:
        return str(resolve_model(name, _NoHub()))
    except ConfigError:
        return None


def _place_of_data(name: str, datasets: Path) -> str | None:
    try:
        return str(resolve_dataset(name, None, datasets, _NoHub()).train.parent)
    except ConfigError:
        return None
