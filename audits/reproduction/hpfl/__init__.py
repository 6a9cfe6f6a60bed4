"""HPFL's tables 2 to 5 and the users' characteristics of its figures 5 and 6."""
