"""Deep matrix factorization of interactions: users and items meet in one hidden layer."""
