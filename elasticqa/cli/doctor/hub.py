"""Models and data sets of the recipes: on this machine, on the hub, or missing."""

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
class _EmptyHub(Hub):
    """A hub without content, so that only local models and data sets are found."""

    # If this were True, `resolve_dataset` would convert data sets from the cache of the `datasets` library.
    is_offline: bool = False

    def why_unavailable(self, *_: object) -> str:
        return "not looked up"


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Look for the inputs of the recipes on this machine, then on the hub."""
    return check_recipes(home_of(environ) / "cache" / "datasets", Hub())


def check_recipes(datasets: Path, hub: Hub) -> list[Finding]:
    """Return one finding for each model and data set of the recipes; nothing is downloaded."""
    models = {config.model: name for name, config in reversed(RECIPES.items())}
    names = {config.dataset: name for name, config in reversed(RECIPES.items())}
    return [
        *(_look_up("model", name, recipe, datasets, hub) for name, recipe in models.items()),
        *(_look_up("dataset", name, recipe, datasets, hub) for name, recipe in names.items()),
    ]


def _look_up(kind: Literal["model", "dataset"], name: str, recipe: str, datasets: Path, hub: Hub) -> Finding:
    try:
        if kind == "model":
            path = Path(resolve_model(name, _EmptyHub()))
        else:
            path = resolve_dataset(name, None, datasets, _EmptyHub()).train.parent
    except ConfigError:
        reason = hub.why_unavailable("models" if kind == "model" else "datasets", name)
    else:
        return ok(kind, f"{name} is here: {path}")
    prepare = f"elasticqa prepare --recipe {recipe}"
    if reason is None:
        return ok(kind, f"{name} can be downloaded; for nodes without a network, run `{prepare}` first")
    advice = f"run `{prepare}` where the hub can be reached and copy its directories here, or give --{kind} a path"
    return warn(kind, f"{name} is not here: {reason}", advice)
