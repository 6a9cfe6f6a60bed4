"""A configuration on separate hosts: the files of each host, and the command that starts them.

Reading order: ``blueprint`` (what all hosts build from), ``homes`` (the folders of hosts), ``site``
(the process of a client's host), ``command`` (``secure-fedrec deploy``).
"""
