"""Audits: configuration in, verdict and report out.

Reading order: ``cli`` and ``commands`` (what a user types), ``config`` (what it means), ``build``
and ``training`` (the run), ``run`` (the audit), ``gates`` (the judgement), ``findings``,
``assemble`` and ``report`` (the result).
"""
