"""Deep matrix factorization of interactions, with one hidden layer on users and items."""
