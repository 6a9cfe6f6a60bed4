"""FedDMF as an audit runs it: organisations with common items, exchanged vectors or sums."""
