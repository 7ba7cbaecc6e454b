"""Which checkpoints stay when others are damaged."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticqa.checkpoint.manifest import checkpoint_directories, has_all_bytes, read_manifest, step_of
from elasticqa.checkpoint.retention import SET_ASIDE, note_best, noted_best, prune, set_aside
from elasticqa.errors import CheckpointError
from tests.support.checkpoints import commit, tear


def whole_steps(directory: Path) -> list[int]:
    """Return the steps of the checkpoints that match their manifests, newest first."""
    found = []
    for path in checkpoint_directories(directory):
        try:
            found.append(read_manifest(path, verify=True).step)
        except CheckpointError:
            continue
    return found


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 6)),
        st.tuples(st.just("tear"), st.integers(0, 5)),
        st.tuples(st.just("best"), st.integers(0, 5)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(actions=ACTIONS, keep=st.integers(1, 3))
def test_newest_whole_ones_and_the_best_outlive_every_sequence_of_saves_and_damage(
    actions: list[tuple[str, int]], keep: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory, step, f1 = Path(folder), 0, 0.0
        for kind, value in actions:
            found = checkpoint_directories(directory)
            if kind == "restart":
                step = max(whole_steps(directory), default=0)
            elif kind == "commit":
                step += value
                whole = [each for each in whole_steps(directory) if each < step]
                best = noted_best(directory)
                commit(directory, step)
                prune(directory, step, keep)
                after = whole_steps(directory)
                assert after[: min(keep, len(whole) + 1)] == [step, *whole][:keep]
                if best is not None and step_of(best[0]) in whole:
                    assert step_of(best[0]) in after
                assert len(checkpoint_directories(directory)) <= keep + 1
            elif found:
                path = found[value % len(found)]
                if kind == "tear":
                    tear(path)
                else:
                    f1 += 1.0
                    note_best(directory, step_of(path), f1)


def test_only_whole_checkpoint_stays_when_the_one_just_written_is_torn(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    tear(commit(tmp_path, 2))
    prune(tmp_path, 2, keep=1)
    assert whole_steps(tmp_path) == [1]


def test_bytes_tell_a_torn_checkpoint_but_not_a_flipped_one(tmp_path: Path) -> None:
    torn, flipped, bare = (commit(tmp_path, step) for step in (1, 2, 3))
    tear(torn)
    (flipped / "__0_0.distcp").write_bytes(b"x" * 99 + b"y")
    (bare / "manifest.json").unlink()
    assert [has_all_bytes(path) for path in (torn, flipped, bare)] == [False, True, False]


def test_newer_ones_are_set_aside_and_give_way_to_others_of_their_step(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        commit(tmp_path, step)
    assert set_aside(tmp_path, 1) == ["step-00000003", "step-00000002"]
    assert whole_steps(tmp_path) == [1]
    assert whole_steps(tmp_path / SET_ASIDE) == [3, 2]
    commit(tmp_path, 2)
    assert set_aside(tmp_path, 1) == ["step-00000002"]
    assert set_aside(tmp_path, 1) == []
