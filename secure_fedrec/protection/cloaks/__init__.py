"""Cloaks: rated sets covered at the client, before anything is encoded.

Reading order: ``virtual_ratings`` (FedRec's hybrid filling), ``randomized_response`` (SDCF's two
stages), ``layer`` (their records).
"""
