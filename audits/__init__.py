"""Audits: configuration in, verdict and report out.

Reading order: ``cli``, ``interrupts``, ``command_line``, ``commands`` and ``data_command`` (what a
user types), ``config`` and ``tables`` (what it means), ``systems`` (the algorithms that can be
audited), ``build``, ``folder`` and ``training`` (the run), ``truth`` (what attacks are scored
against), ``run`` (the audit), ``gates`` (the judgement), ``measures``, ``findings``, ``assemble``
and ``report`` (the result).
"""
