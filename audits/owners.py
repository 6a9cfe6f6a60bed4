"""Other distributions that have installed a package with one of our names.

``attacks`` and ``audits`` are plain top-level packages; pip installs a second owner of such a name
without a warning.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, distributions

from secure_fedrec.errors import ConfigError

DISTRIBUTION = "secure-fedrec"


def owners_of(packages: Sequence[str]) -> Mapping[str, set[str]]:
    """Names of the installed distributions that have files in top-level packages.

    ``importlib.metadata.packages_distributions`` looks at every file of every distribution, which
    takes longer than most commands; here the lists of files are searched as text.
    """
    found: dict[str, set[str]] = {package: set() for package in packages}
    for each in distributions():
        for package in packages:
            if _holds(each, package):
                found[package].add(each.metadata["Name"])
    return found


def _holds(installed: Distribution, package: str) -> bool:
    if declared := (installed.read_text("top_level.txt") or "").split():
        return package in declared
    record = installed.read_text("RECORD")
    if record is None:  # not installed from a wheel
        return any(file.parts[0] in (package, f"{package}.py") for file in installed.files or ())
    ours = rf'^"?{re.escape(package)}(/.*)?\.py\b'
    return re.search(ours, record, flags=re.MULTILINE) is not None


def require_own_packages() -> None:
    """Refuse to run if another distribution has overwritten ``attacks`` or ``audits``.

    Raises:
        ConfigError: a foreign distribution claims one of the names.
    """
    for package, owners in owners_of(("attacks", "audits")).items():
        if foreign := owners - {DISTRIBUTION}:
            raise ConfigError(
                "environment",
                sorted(foreign),
                f"also installs a package named {package!r}; use a dedicated environment",
            )
