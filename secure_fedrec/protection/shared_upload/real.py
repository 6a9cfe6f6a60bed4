"""Former documented import path of ``Identities``, which is in ``identities`` now."""

from secure_fedrec.protection.shared_upload.identities import Identities

__all__ = ["Identities"]
