"""Memory that is freed and taken again: large arrays cost no page faults a second time."""

import json
import subprocess
import sys

import pytest

CODE = """
import json, resource
import numpy as np
from secure_fedrec.core.allocator import reuse_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        arrays = [np.ones(2**20) for _ in range(4)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

taken = reuse_freed_memory()
faults()
print(json.dumps([taken, reuse_freed_memory(), faults()]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="another allocator")
def test_what_was_freed_is_not_mapped_anew() -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True
    )
    taken, again, faults = json.loads(done.stdout)
    assert taken == again
    if taken:  # glibc's
        assert faults < 100  # 20 x 4 x 2048 pages otherwise
