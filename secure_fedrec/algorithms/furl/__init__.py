"""FURL (Bui et al. 2019): federated user representation learning, user vectors stay home."""
