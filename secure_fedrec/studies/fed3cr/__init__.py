"""Fed3CR's experiments: federated recommenders and oracles, ranked under two protocols."""
