"""FedDMF's experiments: predictions across organisations, and methods to compare with."""
