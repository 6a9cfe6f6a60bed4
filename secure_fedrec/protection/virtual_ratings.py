"""Where the cloak was documented to be imported from; it is at home in ``cloaks``."""

from secure_fedrec.protection.cloaks.virtual_ratings import (
    VirtualRatings,
    VirtualRatingsConfig,
    draw_unrated,
    merge_virtual,
)

__all__ = ["VirtualRatings", "VirtualRatingsConfig", "draw_unrated", "merge_virtual"]
