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

On a fleet a batch of tunings is a sweep of its baselines, with what a sweep has already: leases
with fencing tokens, a parent, slots, words for what machines offer and lack, status, cancellation,
resume.

    any machine builds the baseline --> published --> a machine with the device tunes it
                                                          |  plan          ^
                                                          v                | results of stages,
                                       any machine builds the trials ------+ by key, in the feed

- What a sweep with `--bench` measures under a lease is tuned here under that lease. Every write
  checks its token, so nothing comes late from a machine that lost it. One measurement at a time has
  a machine for itself (the ledger's quiet), so two tunings on one device take turns.
- What crosses machines is the results of stages, published under their keys. A stage whose result
  is not there is run where it is needed: nobody waits for a build, and a machine with other tools
  has other keys.
- Sessions of two machines are never mixed. A slot that dies is replaced on the same machine at
  once, which goes on with the sessions that it has; when the whole machine is lost, the lease ends
  after two heartbeats, another machine with the device takes over, drops the sessions of that model
  and measures it anew, and its notes say so. What was built stays.
- Champions and what was learned are kept by the command that follows the batch, or by the one that
  resumes it, on its own machine: the state has all that they follow from.

The modules:

- A tuning: `batch.py` plans the models of one command and takes them one after the other,
  `tuning.py` is the loop for one of them, `trial.py` one trial; `workplace.py` is what a machine
  makes them with, `making.py` builds and verifies, `measuring.py` compares, `decision.py` turns
  comparisons into verdicts, `estimates.py` keeps the budget. `record.py` says what is recorded,
  `kept.py` writes it.
- On a fleet: `leased.py` is the work under a lease, to measure or to build ahead; `exchange.py`
  carries the results of stages.
- Its plan: `insight.py` gathers the facts of a model, `knowledge.py` what is known already (the
  findings that come with modelmill, those of the user's folder, and the evidence there);
  `ordering.py` and `planning.py` make of both the list of what is tried, in which order and why.
- What it leaves: `conclusion.py` keeps what follows from the trials; `champions.py` writes the file
  of champions and `staleness.py` says what has changed since; `explaining.py` traces where the gain
  comes from; `learning.py` adds evidence and drafts to the knowledge base; `exported.py` writes all
  sessions to a file.
- Measured elsewhere: `recorded.py` reads what other tools measured, `replay.py` judges it by their
  rules and by ours, `elsewhere.py` does it for exports too.
"""
