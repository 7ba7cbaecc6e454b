"""Settings that tell groups of one name apart."""

from dataclasses import replace

from sqlalchemy.orm import Session

from db import queries


def test_only_settings_that_differ_under_one_name_are_told(session: Session) -> None:
    found = queries.speedup_groups(session)[0]
    common = {"epochs": 2, "seed": 1}
    groups = [
        replace(found, key="a", config={**common, "dropout": None, "max_steps": 10}),
        replace(found, key="b", config={**common, "dropout": 0, "max_steps": 10, "seed": 2}),
        replace(found, key="c", config={**common, "max_steps": 4}),
        replace(found, key="elsewhere", config={"max_steps": 99}),
    ]
    assert queries.distinguishing_settings(groups, lambda group: group.key == "elsewhere") == {
        "a": ("dropout not set", "max_steps 10"),
        "b": ("dropout 0", "max_steps 10"),
        "c": ("max_steps 4",),
        "elsewhere": (),
    }
