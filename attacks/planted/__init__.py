"""Federations planted to leak, for positive controls: what an attack must find, it finds there.

Reading order: ``ratings`` (FedRec++), ``split`` and ``organisations`` (two algorithms written for
this), ``runs`` (their data, runs and truth), ``untouched`` and ``partners`` (one more each, with
all of it), ``careless`` (masks that some leave away).
"""

from attacks.planted.careless import plant_careless as plant_careless
from attacks.planted.partners import plant_partner_users as plant_partner_users
from attacks.planted.partners import plant_partners as plant_partners
from attacks.planted.ratings import plant_ratings as plant_ratings
from attacks.planted.runs import plant_organisations as plant_organisations
from attacks.planted.runs import plant_split as plant_split
from attacks.planted.untouched import plant_untouched as plant_untouched
