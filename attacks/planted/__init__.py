"""Federations planted to leak, for positive controls: what an attack must find, it finds there.

Reading order: ``ratings`` (FedRec++), ``split`` and ``organisations`` (two algorithms written for
this), ``runs`` (their data, runs and truth), ``untouched`` and ``partners`` (one more each, with
all of it).
"""

from attacks.planted.partners import plant_partner_users, plant_partners
from attacks.planted.ratings import plant_ratings
from attacks.planted.runs import plant_organisations, plant_split
from attacks.planted.untouched import plant_untouched

__all__ = [
    "plant_organisations",
    "plant_partner_users",
    "plant_partners",
    "plant_ratings",
    "plant_split",
    "plant_untouched",
]
