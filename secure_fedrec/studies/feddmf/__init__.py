"""FedDMF's experiments: what organisations predict across, and what it is compared with."""
