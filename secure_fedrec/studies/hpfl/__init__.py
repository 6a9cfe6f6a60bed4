"""HPFL's studies: its methods, baselines and variants, with the paper's settings."""
