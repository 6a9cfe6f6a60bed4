"""Models that algorithms train. Models; import the modules themselves, since some need torch."""
