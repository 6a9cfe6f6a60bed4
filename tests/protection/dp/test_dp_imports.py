"""The noise layer stands alone: it needs neither torch nor an accountant."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("banned", ["torch", "opacus", "mpmath", "dp_accounting"])
def test_importing_the_noise_layer_imports_no(banned: str) -> None:
    code = (
        "import sys, secure_fedrec.protection.dp; "
        f"sys.exit(any(name.split('.')[0] == {banned!r} for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603
