"""Finding the build that is best on a device, and proving it.

    baseline --> insight --> order --> each hypothesis alone --> what was confirmed, together
                                             |
       build --> same? --> check --> screen --> compare --> confirm --> verdict
                 same   inaccurate   worse    no better   not again    better: champion

A tuning tries hypotheses (`matrix.hypotheses`) on one model and one target. Each is a trial: an
ordinary build of the cell with other settings, so what it shares with the baseline is built once.
It is checked before anything is said of its speed, then measured in turns with the baseline. A
trial costs itself only: whatever fails in it is its verdict.

Nothing is said that the data cannot bear: the intervals hold for all trials of a tuning at once,
and what looks better is measured again in fresh sessions with the roles swapped. Times of an
emulator get verdicts and never a champion.

Every step is recorded as it is made, and what there is left to do is read from the record: a
tuning that was killed goes on with the session that it was in. The order of everything follows
from the seed and the plan, which is made once.

`record.py` says what is recorded, `kept.py` writes it; `tuning.py` is the loop, `trial.py` one
trial, `making.py` builds and checks, `measuring.py` compares, `estimates.py` keeps the budget.
`insight.py` gathers the facts of a model, `ordering.py` makes of them and of what is known the
list of what is tried, in which order and why. `decision.py` turns comparisons into verdicts.

`knowledge.py` is what is known already: the findings that come with modelmill, and those of the
user's own folder with the evidence in it. `policies.py` holds the rules by which sessions are
judged: those of older tools, and ours. `recorded.py` reads what those tools measured, `replay.py`
grades it both ways.
"""
