"""Benchmarks: ``python -m benchmarks NAME [--quick] --json``.

Every judged figure is a ratio measured in one run on one thread, so this package fixes the thread
counts of numpy's libraries before any of its modules can import numpy.
"""

import os

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that a numerical library reads once, when it is loaded."""

for _variable in THREAD_VARIABLES:
    os.environ[_variable] = "1"
