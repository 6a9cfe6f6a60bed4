"""What of the packages is public, in three tiers.

Stable: ``STABLE`` below. A name or a signature of it changes with a major version only, after a
release in which the old one warns. Provisional: everything else that pages import, or that a
package hands on (``documented_names`` of ``docs/_site/reference.py``); it may change with a minor
version, and the changelog says so. Internal: all other modules, which may change at any time.
"""

STABLE = {
    "audits.audit": "(config, *, gates=None, adversaries=None, attacks=None, out=None, "
    "data_dir=None, overrides=None, resume=False, "
    "fail_on=(), baseline=None, formats=('json', 'html'), progress=False, tell=None, command=...)",
    "audits.simulate": "(config, *, out=None, data_dir=None, overrides=None, resume=False, "
    "progress=False, tell=None)",
    "audits.attack": "(recording, *, attacks=None, adversaries=None, progress=False)",
    "audits.plan": "(deployment=None, **settings)",
    "audits.AuditResult": "report, verdict, files, folder, holds, save(directory, *, "
    "formats=('json', 'html')), seed, to_frame()",
    "audits.AttackResult": "findings, undecided, seed, to_frame()",
    "audits.SimulatedRun": "config, folder, history, save(directory), seed",
    "audits.testing.assert_no_leak": "(audited, *, attack, adversary, data_dir=None, **bounds)",
    "secure_fedrec.engines.loop.protect": "(model, *, clients, clip, rounds=None, epsilon=None, "
    "delta=None, cohort=None, **settings)",
    "secure_fedrec.engines.loop.Protection": "(model, terms, *, clients, cohort=None, delta=None)",
    "secure_fedrec.engines.loop.RoundMean": "model, clients, missing, weight, round",
    "secure_fedrec.recording.Recorder": "(*, n_clients, arrays, items=None, data=None, "
    "algorithm=None, rows=None, sums=None, private=None, weighted=False, send_models=False, "
    "directory=None, payload_rounds=None, leave_out=(), ring=None)",
    "secure_fedrec.recording.Recording": "transcript, seen, hidden, secrets, new(public, "
    "directory), open(directory, *, truth=None), save(directory, *, truth=None), "
    "save_truth(path), truth",
    "secure_fedrec.recording.validate": "(directory, *, truth=None)",
    "secure_fedrec.recording.RowTraits": None,
    "secure_fedrec.recording.Traits": None,
    "secure_fedrec.recording.OTHER_ROWS": None,
    "secure_fedrec.recording.SENT_AS_THEY_ARE": None,
    "secure_fedrec.recording.SENT_HIDDEN": None,
    "audits.testing.assert_lossless": None,
    "audits.testing.assert_split_personalization": None,
}
"""Names and signatures; None of what is handed on, and is another module's to change."""
