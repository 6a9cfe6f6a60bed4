"""Exit codes of ``secure-fedrec``, and what each says."""

from collections.abc import Mapping
from types import MappingProxyType

EXIT_CODES: Mapping[int, str] = MappingProxyType(
    {
        0: "pass, or leaks as documented; of other commands: done",
        1: "a gate fell; of check: not lossless, or a property that the algorithm needs is broken; "
        "of compare: a figure got worse",
        2: "usage: a wrong option, configuration or file, a plug-in that raises, or nowhere to "
        "write",
        3: "inconclusive: nothing is decided either way",
        4: "internal error; please report it",
        130: "interrupted; a run goes on with --resume",
    }
)
"""What each code means, the same for every command."""
