from dataclasses import replace
from pathlib import Path

import pytest

from elasticqa.errors import ConfigError
from elasticqa.scaling.study import FAILED, FINISHED, Study, create, find, hold, load, newest_like
from tests.support.scaling import MATRIX


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return create(tmp_path / "studies", MATRIX, ["elasticqa", "scaling"])


def test_study_round_trips_through_its_file(study: Study) -> None:
    first, second, third = study.slots()[:3]
    done = study.add_run(first)
    study.note_submitted(done, "slurm://torchx/1")
    study.note_ended(done, FINISHED)
    study.note_ended(study.add_run(second), FAILED, "out of memory")
    study.add_run(third)
    again = load(study.path)
    assert (again.matrix, again.runs) == (study.matrix, study.runs)
    assert [again.status_of(slot) for slot in (first, second, third)] == ["finished", "failed", "open"]
    assert not again.is_complete()


def test_newest_run_of_a_slot_counts(study: Study) -> None:
    slot = study.slots()[0]
    study.note_ended(study.add_run(slot), FAILED, "x")
    newest = study.add_run(slot)
    study.note_ended(newest, FINISHED)
    assert load(study.path).runs == {slot: newest}


def test_study_is_complete_when_every_slot_has_a_finished_run(study: Study) -> None:
    for slot in study.slots():
        assert not load(study.path).is_complete()
        study.note_ended(study.add_run(slot), FINISHED)
    assert load(study.path).is_complete()


def test_line_cut_off_by_a_crash_is_ignored_and_the_next_one_kept(study: Study) -> None:
    slot = study.slots()[0]
    with study.path.open("a") as file:
        file.write('{"n": 2, "kind": "try", "cell": "ddp')
    assert load(study.path).runs == {}
    run = study.add_run(slot)
    assert load(study.path).runs == {slot: run}


def test_same_matrix_finds_its_newest_study_and_another_does_not(study: Study, tmp_path: Path) -> None:
    newest = create(tmp_path / "studies", MATRIX, [])
    create(tmp_path / "studies", replace(MATRIX, repeats=7), [])
    assert newest_like(MATRIX, tmp_path / "studies") == newest.path
    assert newest_like(replace(MATRIX, nodes=(1,)), tmp_path / "studies") is None


def test_study_is_found_by_a_unique_prefix(study: Study, tmp_path: Path) -> None:
    studies = tmp_path / "studies"
    assert find(study.study_id[:-1], studies) == study.path
    with pytest.raises(ConfigError, match=f"the newest are {study.study_id}"):
        find("9", studies)
    with pytest.raises(ConfigError, match="there are no studies yet"):
        find("9", tmp_path)
    create(studies, MATRIX, [])
    with pytest.raises(ConfigError, match="matches 2 studies"):
        find(study.study_id[:2], studies)


@pytest.mark.parametrize("text", ["", "not JSON\n", '{"kind": "try"}\n', '{"kind": "study", "schema_version": 99}\n'])
def test_file_that_is_not_a_study_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is not a study file of this release"):
        load(path)


def test_second_process_on_a_study_is_refused(study: Study) -> None:
    with hold(study), pytest.raises(ConfigError, match="another process is working on study"), hold(load(study.path)):
        pass
    with hold(study):
        pass


def test_unwritable_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "studies").write_text("a file")
    with pytest.raises(ConfigError, match="cannot be written"):
        create(tmp_path / "studies", MATRIX, [])
