"""Fed3CR's experiments: federated recommenders, ranked under two protocols, beside oracles."""
