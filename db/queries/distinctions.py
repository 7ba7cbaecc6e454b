"""What tells groups apart that would otherwise go by one name."""

from collections.abc import Callable, Hashable, Sequence

from db.queries.comparison import setting_text
from db.queries.groups import Group
from db.summary import NOT_OF_THE_WORK


def distinctions(groups: Sequence[Group], name: Callable[[Group], Hashable]) -> dict[str, tuple[str, ...]]:
    """Return, by the key of each group, the settings in which the groups of its name differ.

    Args:
        groups: that are shown together.
        name: returns what each is called so far.

    Returns:
        Such as `("dropout 0", "max_steps 10")`; empty for a group that is the only one of its name.
    """
    by_name: dict[Hashable, list[Group]] = {}
    for group in groups:
        by_name.setdefault(name(group), []).append(group)
    return {group.key: _settings(group, same) for same in by_name.values() for group in same}


def _settings(group: Group, same: Sequence[Group]) -> tuple[str, ...]:
    shown = {setting: setting_text(value) for setting, value in group.config.items() if setting not in NOT_OF_THE_WORK}
    return tuple(
        f"{setting} {text}"
        for setting, text in sorted(shown.items())
        if any(setting not in other.config or setting_text(other.config[setting]) != text for other in same)
    )
