"""FedRec++'s experiments: rating error and cost of federations that hide rated items."""
