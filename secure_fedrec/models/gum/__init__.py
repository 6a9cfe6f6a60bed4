"""HPFL's general user model (GUM): the model, its arrays, loops and local training."""
