"""Sites and coordinator on Flower's SuperNodes and SuperLink; only this package imports flwr.

Flower carries bytes. A SuperLink normally sends every SuperNode an app, which runs with access to
the client's data; not here: SuperNodes are started with Flower's isolation mode "process", in which
a process of the site fetches their tasks, and that process (``tasks``) answers with the site's own
code, whatever app the SuperLink names. So does the server's side (``superlink``), in the process
that drives the rounds.

Reading order: ``quiet_environment`` (what must be switched off), ``message_bytes``,
``scrubbed_replies`` (replies without details of failures), ``tasks`` (a site's process),
``grid_transport`` (the coordinator's), ``processes`` and ``superlink`` (starting and ending
Flower's own), ``certificates``. An existing app under protection: ``model_records``, ``mod`` (its
client's side), ``strategy`` (its server's).
"""
