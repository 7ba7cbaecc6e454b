"""Differences between groups: unequal work, other settings, hardware and software."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from db.ingest.run_summary import IGNORED_CONFIG_KEYS
from db.queries.groups import Group

_NOT_SETTINGS = frozenset({"name", "seed", "resume", "recipe", "log_every_s"})
_COMPARED_SEPARATELY = frozenset(
    {"model", "dataset", "eval_file", "max_train_features", "epochs", "max_steps", "parallel", "precision"}
    | {"global_batch_size", "micro_batch_size"}
)


@dataclass(frozen=True)
class Difference:
    """A difference to the reference other than the number of devices and the strategy."""

    what: str
    reference: str
    here: str


def is_equal_work(group: Group, reference: Group) -> bool:
    """Return whether both are known to have trained on the same features for the same number of epochs.

    If neither records its number of features, the same recipe with equal data settings counts as equal.
    """
    here, there = group.setting, reference.setting
    if here.num_epochs is None or here.num_epochs != there.num_epochs or here.dataset != there.dataset:
        return False
    limits = ("max_train_features", "max_steps", "max_length", "doc_stride")
    if any(group.config.get(name) != reference.config.get(name) for name in limits):
        return False
    # With `max_steps`, the batch size determines how many features are used.
    if group.config.get("max_steps") is not None and here.global_batch_size != there.global_batch_size:
        return False
    if here.num_train_features is None and there.num_train_features is None:
        return here.recipe is not None and here.recipe == there.recipe
    return here.num_train_features == there.num_train_features


def unequal_work(group: Group, reference: Group) -> str | None:
    """Return a known difference in work, such as `4 against 10 steps` (reference first), or None."""
    here, there = group.setting, reference.setting
    pairs: list[tuple[str, Any, Any]] = []
    if "max_steps" in group.config and "max_steps" in reference.config:
        limits = reference.config["max_steps"], group.config["max_steps"]
        if limits != (None, None):
            first, second = ("all" if limit is None else limit for limit in limits)
            pairs.append(("steps", first, second))
            pairs.append(("features a step", there.global_batch_size, here.global_batch_size))
    pairs.append(("features", there.num_train_features, here.num_train_features))
    pairs.append(("epochs", there.num_epochs, here.num_epochs))
    for what, first, second in pairs:
        if first is not None and second is not None and first != second:
            return f"{_shown(first)} against {_shown(second)} {what}"
    return None


def differences(group: Group, reference: Group) -> list[Difference]:
    """Return all differences between two groups other than the number of devices and the strategy."""
    here, there = group.setting, reference.setting
    pairs: list[tuple[str, Any, Any]] = [
        ("provenance", there.provenance, here.provenance),
        ("recipe", there.recipe, here.recipe),
        ("hardware", there.device_name, here.device_name),
        ("global batch", there.global_batch_size, here.global_batch_size),
        ("precision", there.precision, here.precision),
        ("model", there.model, here.model),
        ("data", there.dataset, here.dataset),
        ("features x epochs", _work(reference), _work(group)),
    ]
    pairs += _software_pairs(group, reference)
    # The other settings that both sides recorded.
    names = (group.config.keys() & reference.config.keys()) - _NOT_SETTINGS - _COMPARED_SEPARATELY
    for name in sorted(names):
        pairs.append((name, setting_text(reference.config[name]), setting_text(group.config[name])))
    return [Difference(what, _shown(there), _shown(here)) for what, there, here in pairs if there != here]


def distinguishing_settings(groups: Sequence[Group], name: Callable[[Group], Hashable]) -> dict[str, tuple[str, ...]]:
    """Return, by group key, the settings in which groups of the same name differ.

    Such as `("dropout 0", "max_steps 10")`; empty for a group with a unique name.
    """
    by_name: dict[Hashable, list[Group]] = {}
    for group in groups:
        by_name.setdefault(name(group), []).append(group)
    found: dict[str, tuple[str, ...]] = {}
    for same in by_name.values():
        shown = [{setting: setting_text(value) for setting, value in group.config.items()} for group in same]
        # A setting that a group does not record gives None, which differs from the text of every recorded value.
        recorded = {setting for settings in shown for setting in settings} - IGNORED_CONFIG_KEYS
        differing = sorted(each for each in recorded if len({settings.get(each) for settings in shown}) > 1)
        for group, settings in zip(same, shown, strict=True):
            found[group.key] = tuple(f"{each} {settings[each]}" for each in differing if each in settings)
    return found


def setting_text(value: Any) -> str:
    """Return the text of a recorded setting; null means that its default was used.

    >>> setting_text(None), setting_text(0.1), setting_text(10_000)
    ('not set', '0.1', '10,000')
    """
    return "not set" if value is None else _shown(value)


def _work(group: Group) -> str:
    setting, max_steps = group.setting, group.config.get("max_steps")
    work = f"{_shown(setting.num_train_features)} x {_shown(setting.num_epochs)}"
    return work if max_steps is None else f"{work}, {max_steps} steps at most"


def _software_pairs(group: Group, reference: Group) -> list[tuple[str, Any, Any]]:
    if group.software == reference.software:
        return []
    if not group.software or not reference.software:
        there, here = ("known" if each.software else "unknown" for each in (reference, group))
        return [("software", there, here)]
    names = sorted({name for versions in (*group.software, *reference.software) for name in versions})
    return [(name, _versions(reference, name), _versions(group, name)) for name in names]


def _versions(group: Group, name: str) -> str:
    return ", ".join(sorted({_shown(versions.get(name)) for versions in group.software}))


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.10g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
