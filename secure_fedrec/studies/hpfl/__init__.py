"""HPFL's studies: its methods, rivals and variants, with the paper's settings."""
