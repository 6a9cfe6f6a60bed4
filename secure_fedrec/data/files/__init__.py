"""Rating tables from anybody's files: delimited text, packed or not, and Parquet.

A file goes one way: ``columns`` (or ``parquet``) reads its columns, ``ids`` and ``values`` make of
their texts what a table holds, ``faults`` explains, line by line, why a file is none, and ``table``
puts them together. ``settings`` says how a file is to be read, ``shape`` finds out what it does not
say, ``describe`` tells what is in it.
"""

from secure_fedrec.data.files.settings import AttributesFile as AttributesFile
from secure_fedrec.data.files.settings import CatalogueFile as CatalogueFile
from secure_fedrec.data.files.settings import RatingsFile as RatingsFile
from secure_fedrec.data.files.settings import TextFile as TextFile
from secure_fedrec.data.files.table import FileRatings as FileRatings
from secure_fedrec.data.files.table import read_ratings as read_ratings
