"""Neural collaborative filtering, whole and cut into private and federated parameters."""
