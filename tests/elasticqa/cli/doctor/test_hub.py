"""Models and data sets of the recipes: on this machine, on the hub, or missing."""

import json
from pathlib import Path

from elasticqa.cli.doctor.finding import Finding
from elasticqa.cli.doctor.hub import check_recipes
from elasticqa.data.hub import Hub
from tests.support.squad_samples import document

OFFLINE = Hub(is_offline=True)


class _FullHub(Hub):
    """A hub that has everything."""

    def why_unavailable(self, *_: object) -> None:
        """Never say no."""


def by_name(findings: list[Finding]) -> dict[tuple[str, str], Finding]:
    """Return findings by kind and name."""
    return {(finding.check, finding.found.split()[0]): finding for finding in findings}


def test_packaged_demo_is_here_and_hub_content_is_missing_offline(tmp_path: Path) -> None:
    found = by_name(check_recipes(tmp_path, OFFLINE))
    assert found["dataset", "demo"].status == "ok"
    squad = found["dataset", "rajpurkar/squad"]
    assert squad.status == "warn"
    assert "HF_HUB_OFFLINE is set" in squad.found
    assert "elasticqa prepare --recipe squad" in (squad.advice or "")
    assert "--dataset a path" in (squad.advice or "")
    assert ("model", "bert-base-uncased") in found


def test_prepared_data_set_is_found_without_a_hub(tmp_path: Path) -> None:
    folder = tmp_path / "rajpurkar--squad"
    folder.mkdir()
    (folder / "train.json").write_text(json.dumps(document()))
    squad = by_name(check_recipes(tmp_path, OFFLINE))["dataset", "rajpurkar/squad"]
    assert squad.status == "ok"
    assert str(folder) in squad.found


def test_content_of_the_hub_is_ok_and_not_downloaded(tmp_path: Path) -> None:
    squad = by_name(check_recipes(tmp_path, _FullHub()))["dataset", "rajpurkar/squad"]
    assert squad.status == "ok"
    assert "can be downloaded" in squad.found
    assert list(tmp_path.glob("*/*")) == []
