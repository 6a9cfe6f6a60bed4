"""Puts the repository first on the path: some installed packages ship a ``benchmarks`` too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
