"""Former documented import path of the cloak, which is in ``cloaks`` now."""

from secure_fedrec.protection.cloaks.virtual_ratings import (
    VirtualRatings,
    VirtualRatingsConfig,
    draw_unrated,
    merge_virtual,
)

__all__ = ["VirtualRatings", "VirtualRatingsConfig", "draw_unrated", "merge_virtual"]
