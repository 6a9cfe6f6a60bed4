"""Sites and coordinator on Flower's SuperNodes and SuperLink: the only package that imports flwr.

Flower carries bytes. A SuperLink hands every SuperNode the app that it is to run, and a SuperNode
runs it beside the client's data; not here: SuperNodes are started with Flower's isolation mode
"process", which leaves it to a process of the site's own to fetch their tasks, and that process
(``tasks``) answers with the site's own code, whatever app the SuperLink names. So does the server's
side (``superlink``), in the process that drives the rounds.

Reading order: ``quiet_environment`` (what must be switched off), ``message_bytes``,
``scrubbed_replies`` (of failures, nothing), ``tasks`` (a site's process), ``grid_transport`` (the
coordinator's), ``processes`` and ``superlink`` (starting and ending Flower's own),
``certificates``. An existing app under protection: ``model_records``, ``mod`` (its client's side),
``strategy`` (its server's).
"""
