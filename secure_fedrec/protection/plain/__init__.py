"""No protection: every client sends its rows under its name, the server adds them up.

Reading order: ``messages``, ``client``, ``server`` (the halves), ``embedded``, ``hosted``,
``layer``.
"""
