"""Recordings of federations that this package did not run: written down, checked, read back.

Reading order: ``shared_arrays`` (the exchanged arrays of a model and their places), ``recorder``
(who sent what to whom), ``recording`` (the result, in memory or in files), ``truth_file`` (what
claims are scored against, in a file of its own), ``own_files`` and ``public_facts`` (checks of
files and of public knowledge), ``validation`` (whether files are a recording), ``parquet_form``
(the same as tables).
"""

from secure_fedrec.recording.recorder import Recorder
from secure_fedrec.recording.recording import Recording
from secure_fedrec.recording.validation import validate
from secure_fedrec.traits import BARE as SENT_AS_THEY_ARE
from secure_fedrec.traits import HIDDEN as SENT_HIDDEN
from secure_fedrec.traits import OTHER_ROWS, RowTraits, Traits

__all__ = [
    "OTHER_ROWS",
    "SENT_AS_THEY_ARE",
    "SENT_HIDDEN",
    "Recorder",
    "Recording",
    "RowTraits",
    "Traits",
    "validate",
]
