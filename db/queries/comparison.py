"""A group against its reference: which ratio may be stated, how sure it is, and what else differs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from db.queries import statistics
from db.queries.groups import Group, Setting
from db.queries.statistics import Interval, RankTest

PROVENANCES = ("measured", "imported", "reported")
_NOT_SETTINGS = frozenset({"name", "seed", "resume", "recipe", "log_every_s"})
_NAMED_APART = frozenset(
    {"model", "dataset", "eval_file", "max_train_features", "epochs", "max_steps", "parallel", "precision"}
    | {"global_batch_size", "micro_batch_size"}
)


@dataclass(frozen=True)
class Difference:
    """Something besides the number of devices and the strategy that the reference does not share."""

    what: str
    reference: str
    here: str


@dataclass(frozen=True)
class Ratio:
    """How many times faster than the reference, with what is known of its certainty."""

    kind: Literal["speedup", "throughput_ratio"]
    """`speedup`: of wall clocks at equal work; else of features a second."""
    scaling: Literal["strong", "weak", "mixed"] | None
    """Global batch equal, batch a device equal, or neither; None at equal world sizes."""
    value: float
    interval: Interval | None
    """95% bootstrap interval; None when a side has one run."""
    test: RankTest | None
    """None when a side has one run."""
    parallel_efficiency: float | None


@dataclass(frozen=True)
class Comparison:
    """A group beside its reference; the reference itself has neither ratio nor differences."""

    group: Group
    reference: Group | None
    ratio: Ratio | None
    differences: tuple[Difference, ...]

    @property
    def unequal_work(self) -> str | None:
        """In which the work is known to be unequal, as `4 against 10 steps`, the reference first; else None."""
        return None if self.reference is None else _unequal_work(self.group, self.reference)


def default_reference(group: Group, candidates: list[Group]) -> Group | None:
    """Return the one-device group of the same recipe and provenance that a group is compared with.

    Of several, one of equal work; then of the plainest strategy, with most repeats, and the newest.

    Args:
        group: to be compared.
        candidates: of any recipes and provenances, the group of the newest run first.
    """
    return _best_reference(group, _plainest_first(candidates).get((group.setting.recipe, group.setting.provenance), ()))


def _plainest_first(candidates: Sequence[Group]) -> dict[tuple[str | None, str], list[Group]]:
    """Return the one-device groups by recipe and provenance, the plainest strategy with most repeats first."""
    found: dict[tuple[str | None, str], list[Group]] = {}
    for candidate in candidates:
        if candidate.setting.world_size == 1:
            found.setdefault((candidate.setting.recipe, candidate.setting.provenance), []).append(candidate)
    for same in found.values():
        same.sort(key=lambda each: (each.setting.parallel not in {None, "none"}, -len(each.repeats)))
    return found


def _best_reference(group: Group, plainest_first: Sequence[Group]) -> Group | None:
    equal = (candidate for candidate in plainest_first if is_equal_work(group, candidate))
    return next(equal, plainest_first[0] if plainest_first else None)


def compare_all(
    groups: list[Group], references: tuple[str, ...] = (), candidates: list[Group] | None = None
) -> list[Comparison]:
    """Return every group beside its reference.

    Args:
        groups: of any recipes and provenances.
        references: keys of groups that the reader chose; each serves all groups of its recipe. Without one, a
            group is compared with the one of `default_reference`.
        candidates: where references are looked for; the groups themselves when left out.
    """
    candidates = groups if candidates is None else candidates
    chosen = {group.setting.recipe: group for group in candidates if group.key in references}
    plainest = _plainest_first(candidates)
    comparisons = []
    for group in groups:
        setting = group.setting
        default = _best_reference(group, plainest.get((setting.recipe, setting.provenance), ()))
        comparisons.append(compare(group, chosen.get(setting.recipe) or default))
    return comparisons


def compare(group: Group, reference: Group | None) -> Comparison:
    """Return one group beside a reference."""
    if reference is None or reference.key == group.key:
        return Comparison(group, reference, None, ())
    return Comparison(group, reference, _ratio(group, reference), tuple(differences(group, reference)))


def is_equal_work(group: Group, reference: Group) -> bool:
    """Tell whether both are known to have trained on the same features as often.

    Where the number of features is recorded for neither, one recipe with equal data settings stands for it.
    """
    here, there = group.setting, reference.setting
    if here.num_epochs is None or here.num_epochs != there.num_epochs or here.dataset != there.dataset:
        return False
    limits = ("max_train_features", "max_steps", "max_length", "doc_stride")
    if any(group.config.get(name) != reference.config.get(name) for name in limits):
        return False
    # Where the steps are limited, the features that were seen go with the batch.
    if group.config.get("max_steps") is not None and here.global_batch_size != there.global_batch_size:
        return False
    if here.num_train_features is None and there.num_train_features is None:
        return here.recipe is not None and here.recipe == there.recipe
    return here.num_train_features == there.num_train_features


def _unequal_work(group: Group, reference: Group) -> str | None:
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


def _ratio(group: Group, reference: Group) -> Ratio | None:
    kind: Literal["speedup", "throughput_ratio"] = "throughput_ratio"
    here, there = group.values_of("samples_per_s"), reference.values_of("samples_per_s")
    walls = group.values_of("wall_clock_s"), reference.values_of("wall_clock_s")
    if is_equal_work(group, reference) and all(walls):
        # A speedup divides the reference's time by this one's; a throughput ratio the other way round.
        kind, there, here = "speedup", *walls
    if not here or not there:
        return None
    value = statistics.ratio_of_medians(here, there)
    efficiency = None
    if group.setting.world_size and reference.setting.world_size:
        efficiency = statistics.parallel_efficiency(value, reference.setting.world_size, group.setting.world_size)
    return Ratio(
        kind,
        _scaling(group.setting, reference.setting),
        value,
        *_certainty(tuple(here), tuple(there)),
        efficiency,
    )


@lru_cache(maxsize=1024)
def _certainty(here: tuple[float, ...], there: tuple[float, ...]) -> tuple[Interval | None, RankTest | None]:
    """Return interval and test, kept because a page asks for the same thousands of resamples at every visit."""
    is_repeated = len(here) > 1 and len(there) > 1
    test = statistics.mann_whitney(here, there) if is_repeated else None
    return statistics.ratio_interval(here, there), test


def _scaling(here: Setting, there: Setting) -> Literal["strong", "weak", "mixed"] | None:
    sizes = (here.world_size, there.world_size, here.global_batch_size, there.global_batch_size)
    if None in sizes or here.world_size == there.world_size:
        return None
    if here.global_batch_size == there.global_batch_size:
        return "strong"
    per_device = [(setting.global_batch_size or 0) / (setting.world_size or 1) for setting in (here, there)]
    return "weak" if per_device[0] == per_device[1] else "mixed"


def differences(group: Group, reference: Group) -> list[Difference]:
    """Return what differs between two groups besides the number of devices and the strategy."""
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
    pairs += _software_pairs(group, reference) + _config_pairs(group, reference)
    return [Difference(what, _shown(there), _shown(here)) for what, there, here in pairs if there != here]


def _work(group: Group) -> str:
    setting, max_steps = group.setting, group.config.get("max_steps")
    work = f"{_shown(setting.num_train_features)} x {_shown(setting.num_epochs)}"
    return work if max_steps is None else f"{work}, {max_steps} steps at most"


def _software_pairs(group: Group, reference: Group) -> list[tuple[str, Any, Any]]:
    if group.software == reference.software:
        return []
    if not group.software or not reference.software:
        return [("software", _is_known(reference), _is_known(group))]
    names = sorted({name for versions in (*group.software, *reference.software) for name in versions})
    return [(name, _versions(reference, name), _versions(group, name)) for name in names]


def _is_known(group: Group) -> str:
    return "known" if group.software else "unknown"


def _versions(group: Group, name: str) -> str:
    return ", ".join(sorted({_shown(versions.get(name)) for versions in group.software}))


def _config_pairs(group: Group, reference: Group) -> list[tuple[str, Any, Any]]:
    """Return the other settings that both sides recorded."""
    names = (group.config.keys() & reference.config.keys()) - _NOT_SETTINGS - _NAMED_APART
    return [(name, setting_text(reference.config[name]), setting_text(group.config[name])) for name in sorted(names)]


def setting_text(value: Any) -> str:
    """Return a recorded setting; one that is null was left to its default, which is not unknown.

    >>> setting_text(None), setting_text(0.1), setting_text(10_000)
    ('not set', '0.1', '10,000')
    """
    return "not set" if value is None else _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.10g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
