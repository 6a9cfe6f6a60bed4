"""A Flower app: a small network learns handwritten digits."""
