"""Where ``Identities`` was documented to be imported from; it is at home in ``identities``."""

from secure_fedrec.protection.shared_upload.identities import Identities

__all__ = ["Identities"]
