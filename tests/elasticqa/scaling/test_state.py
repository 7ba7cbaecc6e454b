from dataclasses import replace
from pathlib import Path

import pytest

from elasticqa.errors import ConfigError
from elasticqa.scaling import state
from elasticqa.scaling.state import Study, create, find, hold, load, newest_like
from tests.elasticqa.scaling.test_plan import PLAN


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return create(tmp_path / "studies", PLAN, ["elasticqa", "scaling"])


def test_study_is_the_same_after_its_file(study: Study) -> None:
    first, second, third = study.plan.slots(study.study_id)[:3]
    done = study.begin_try(first)
    study.submitted(done, "slurm://torchx/1")
    study.ended(done, state.FINISHED)
    study.ended(study.begin_try(second), state.FAILED, "out of memory")
    study.begin_try(third)
    again = load(study.path)
    assert (again.plan, again.tries) == (study.plan, study.tries)
    assert [again.status_of(slot) for slot in (first, second, third)] == ["finished", "failed", "open"]
    assert not again.is_complete()


def test_newest_try_of_a_slot_counts(study: Study) -> None:
    slot = study.plan.slots(study.study_id)[0]
    study.ended(study.begin_try(slot), state.FAILED, "x")
    newest = study.begin_try(slot)
    study.ended(newest, state.FINISHED)
    assert load(study.path).tries == {slot: newest}


def test_study_is_complete_when_every_slot_has_a_finished_run(study: Study) -> None:
    for slot in study.plan.slots(study.study_id):
        assert not load(study.path).is_complete()
        study.ended(study.begin_try(slot), state.FINISHED)
    assert load(study.path).is_complete()


def test_line_torn_by_a_kill_never_happened_and_swallows_no_other(study: Study) -> None:
    slot = study.plan.slots(study.study_id)[0]
    with study.path.open("a") as file:
        file.write('{"n": 2, "kind": "try", "cell": "ddp')
    assert load(study.path).tries == {}
    item = study.begin_try(slot)
    assert load(study.path).tries == {slot: item}


def test_same_command_finds_its_newest_study_and_another_does_not(study: Study, tmp_path: Path) -> None:
    newest = create(tmp_path / "studies", PLAN, [])
    create(tmp_path / "studies", replace(PLAN, repeats=7), [])
    assert newest_like(PLAN, tmp_path / "studies") == newest.path
    assert newest_like(replace(PLAN, nodes=(1,)), tmp_path / "studies") is None


def test_study_is_found_by_its_beginning(study: Study, tmp_path: Path) -> None:
    studies = tmp_path / "studies"
    assert find(study.study_id[:-1], studies) == study.path
    with pytest.raises(ConfigError, match=f"the newest are {study.study_id}"):
        find("9", studies)
    with pytest.raises(ConfigError, match="there is none yet"):
        find("9", tmp_path)
    create(studies, PLAN, [])
    with pytest.raises(ConfigError, match="is the beginning of 2"):
        find(study.study_id[:2], studies)


@pytest.mark.parametrize("text", ["", "not JSON\n", '{"kind": "try"}\n', '{"kind": "study", "schema_version": 99}\n'])
def test_file_that_is_no_study_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match="does not begin as a study"):
        load(path)


def test_second_process_of_a_study_is_refused(study: Study) -> None:
    with hold(study), pytest.raises(ConfigError, match="being worked for by another process"), hold(load(study.path)):
        pass
    with hold(study):
        pass


def test_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "studies").write_text("a file")
    with pytest.raises(ConfigError, match="cannot be written"):
        create(tmp_path / "studies", PLAN, [])
