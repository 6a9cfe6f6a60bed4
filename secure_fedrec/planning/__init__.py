"""What a deployment of masked sums costs: operations, their price on this machine, and bytes."""
