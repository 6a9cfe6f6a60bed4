"""HPFL (Wu et al. 2021): hierarchical personalised federated learning among organisations."""
