"""FedRec++'s denoising clients: virtual rows are collected, summed and subtracted again.

Reading order: ``config`` (who denoises for whom), ``messages`` (the messages of a round),
``client``, ``helper`` (a denoiser), ``server`` (the halves), ``group_sums`` and ``embedded`` (a
round for the engine), ``embedded_mixes`` (the same behind mixes), ``hosted``, ``layer``.
"""
