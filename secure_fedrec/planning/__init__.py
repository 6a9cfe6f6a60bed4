"""The cost of a deployment of masked sums: operations, their time on this machine, and bytes."""
