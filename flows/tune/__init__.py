"""Finding the build that is best on a device, and proving it.

    baseline --> insight --> order --> each hypothesis alone --> what was confirmed, together
                                             |
       build --> same? --> check --> screen --> compare --> confirm --> verdict
                 same   inaccurate   worse    no better   not again    better: champion

A tuning tries hypotheses (`matrix.hypotheses`) on one model and one target. Each is a trial: an
ordinary build of the cell with other settings, so what it shares with the baseline is built once.
It is verified before it is measured, then measured in turns with the baseline. A failure in a trial
is the verdict on that trial and ends nothing else.

Nothing is claimed that the data do not support: the intervals hold for all trials of a tuning at
once, and what looks better is measured again in fresh sessions with the roles swapped. Times of an
emulator get verdicts and never a champion.

Every step is recorded as it is made, and what is left to do is read from the record: a tuning that
was killed goes on with the session that it was in. The order of everything follows from the seed
and the plan, which is made once.

- A tuning: `batch.py` takes the models of one command one after the other, `tuning.py` is the loop
  for one of them, `trial.py` one trial; `making.py` builds and verifies, `measuring.py` compares,
  `decision.py` turns comparisons into verdicts, `estimates.py` keeps the budget. `record.py` says
  what is recorded, `kept.py` writes it.
- Its plan: `insight.py` gathers the facts of a model, `knowledge.py` what is known already (the
  findings that come with modelmill, those of the user's folder, and the evidence there);
  `ordering.py` and `planning.py` make of both the list of what is tried, in which order and why.
- What it leaves: `champions.py` writes the file of champions and `staleness.py` says what has
  changed since; `explaining.py` traces where the gain comes from; `learning.py` adds evidence and
  drafts to the knowledge base; `exported.py` writes all sessions to a file.
- Measured elsewhere: `recorded.py` reads what other tools measured, `replay.py` judges it by their
  rules and by ours, `elsewhere.py` does it for exports too.
"""
