"""FURL's studies: four configurations on texts, and how alike independent user spaces are."""
