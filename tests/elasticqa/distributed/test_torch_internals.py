"""What is built on private parts of torch."""

import os
from pathlib import Path

import pytest

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
