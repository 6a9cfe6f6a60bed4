"""FedDMF (Cheung 2023): organisations without a common user learn through their common items.

Every organisation trains a deep matrix factorization of its own (``models.dmf``); only vectors of
common items leave it, and a loss keeps the vectors of the same item alike at all of them:

    L_emb = beta / |P| sum over common pairs of max(1 - cos(q_i^1, q_i^2), m)              (eq. 4)

In every step P are all pairs, as printed, or, with ``similarity = "batch"``, those of the batch's
items. So the vectors of all organisations come to lie in one space, and a user's tastes can be read
off items that its organisation has never had: it takes the other's vectors of these and applies its
own p_u and layers. Two forms differ in who sees what:

- ``ExchangedFedDMF``, as published: every organisation gives its vectors to every other;
- ``SummedFedDMF``: the server is sent vectors of length 1 in a protected sum and hands the sum
  back; an organisation's target is the sum minus its own part, the mean direction of the others.
  With two organisations that is the other's vector, whatever hides the sum.

To let others score the items that they do not have, an organisation gives the vectors of these as
well: ``ServedFedDMF`` does so with every exchange.

``AveragedDMF`` is the paper's baseline FedAvg, on the same clients.
"""
