"""Rating tables from arbitrary files: text in columns, lists or JSON, packed or not, and Parquet.

The steps of reading a file: ``source`` opens it, ``columns`` (or ``lists``, ``jsonlines``,
``parquet``) reads its columns, ``ids``, ``times`` and ``values`` convert their texts to the values
of a table, ``faults`` explains, line by line, why a file is not a table, and ``table`` puts them
together. ``settings`` says how a file is to be read, ``shape`` finds out how its lines are made.
Settings that are not stated are taken by ``guess`` from names (``kinds``) and from the content of
columns (``contents``); ``doubts`` raises questions about ratings, and ``describe`` summarises a
file.
"""

from secure_fedrec.data.files.settings import AttributesFile as AttributesFile
from secure_fedrec.data.files.settings import CatalogueFile as CatalogueFile
from secure_fedrec.data.files.settings import RatingsFile as RatingsFile
from secure_fedrec.data.files.settings import TextFile as TextFile
from secure_fedrec.data.files.table import FileRatings as FileRatings
from secure_fedrec.data.files.table import read_ratings as read_ratings
