"""What tells groups apart that would otherwise go by one name."""

from collections.abc import Callable, Hashable, Sequence

from db.ingest.run_summary import NOT_OF_THE_WORK
from db.queries.comparison import setting_text
from db.queries.groups import Group


def distinguishing_settings(groups: Sequence[Group], name: Callable[[Group], Hashable]) -> dict[str, tuple[str, ...]]:
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
    return {key: settings for same in by_name.values() for key, settings in _settings(same).items()}


def _settings(same: Sequence[Group]) -> dict[str, tuple[str, ...]]:
    if len(same) == 1:
        return {same[0].key: ()}
    shown = {
        group.key: {
            setting: setting_text(value) for setting, value in group.config.items() if setting not in NOT_OF_THE_WORK
        }
        for group in same
    }
    # A setting that one of them did not record is None there, which no text is.
    texts: dict[str, set[str | None]] = {}
    for setting in {setting for settings in shown.values() for setting in settings}:
        texts[setting] = {settings.get(setting) for settings in shown.values()}
    return {
        key: tuple(f"{setting} {text}" for setting, text in sorted(settings.items()) if len(texts[setting]) > 1)
        for key, settings in shown.items()
    }
