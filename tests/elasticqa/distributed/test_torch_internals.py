"""Functions on private parts of torch."""

import os
import re
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.processes import run_python


@pytest.mark.parametrize("named", [None, "/somewhere/else"])
def test_compiled_code_is_kept_unless_the_environment_names_another_directory(
    named: str | None, tmp_path: Path
) -> None:
    program = (
        "import os, sys, torch._dynamo, torch._inductor.codecache; from pathlib import Path\n"
        "from torch._inductor.runtime.cache_dir_utils import cache_dir\n"
        "from elasticqa.distributed.torch_internals import set_compile_caches\n"
        "cache_dir(); set_compile_caches(Path(sys.argv[1]))\n"
        "print(cache_dir(), os.environ['TRITON_CACHE_DIR'])"
    )
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    environ = {name: value for name, value in os.environ.items() if name not in names}
    environ |= {name: os.fspath(tmp_path / named[1:]) for name in names} if named else {}
    done = run_python("-c", program, tmp_path, env=environ)
    assert done.returncode == 0, done.stderr
    expected = [tmp_path / named[1:]] * 2 if named else [tmp_path / "compiled", tmp_path / "triton"]
    assert done.stdout.split() == [os.fspath(path) for path in expected]


def test_private_parts_of_torch_are_used_in_one_file() -> None:
    private = re.compile(
        r"\b(?:torch|dist|DistributedDataParallel|DTensor)\b[\w.]*\._[a-z]|from torch.* import .*\b_[A-Z]"
    )
    files = (REPOSITORY / "elasticqa").rglob("*.py")
    assert [path.name for path in files if private.search(path.read_text(encoding="utf-8"))] == ["torch_internals.py"]
