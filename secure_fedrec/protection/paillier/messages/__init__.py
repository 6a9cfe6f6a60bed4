"""Messages of the halves of encrypted rounds, and the plan that they agree on before.

Reading order: ``envelopes`` (kinds of messages), ``plans`` (the agreement), ``plan_parties``
(what all of them have in common), ``uploads``, ``tables``, ``words_shown`` (what a view shows of an
upload), ``sizes``.
"""
