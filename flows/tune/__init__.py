"""Finds the fastest build of a model on a device, and proves the gain.

    baseline --> insight --> order --> each hypothesis alone --> confirmed ones together
                                             |
       build --> same? --> check --> screen --> compare --> confirm --> verdict
                 same   inaccurate   worse    no better   not again    better: champion

A tuning tries hypotheses (`matrix.hypotheses`) on one model and one target. Each is a trial: an
ordinary build of the cell with other settings, so stages that it shares with the baseline run once.
It is verified before it is measured, then measured in turns with the baseline. A failure in a trial
is the verdict on that trial and stops nothing else.

A tuning claims only what the data support: the intervals hold for all trials of a tuning together,
and a trial that looks better is measured again in fresh sessions with the roles swapped. Trials on
an emulator get verdicts but never become champions.

Every step is recorded as soon as it is done, and the remaining work is read from the record, so a
killed tuning continues with the session that was interrupted. The order of all steps follows from
the seed and the plan, which is made once.

On a fleet a batch of tunings is a sweep of its baselines, and uses the machinery of a sweep: leases
with fencing tokens, a parent, slots, the words that describe what machines offer, status,
cancellation, resume.

    any machine builds the baseline --> published --> a machine with the device tunes it

- The lease under which a sweep with `--bench` measures a cell is here the lease for its tuning.
  Every write checks the token, so late writes of a machine that lost the lease are refused. A
  measurement reserves the whole machine (the ledger's quiet), so two tunings on one device take
  turns.
- The machine that measures builds the trials too. Stages that another machine has run, such as the
  export of the baseline, come from the shared cache if there is one (`workers.store.cache`).
- Sessions of two machines are never mixed. A slot that dies is replaced on the same machine at
  once, and the new slot continues with the recorded sessions. If the whole machine is lost, the
  lease ends after two heartbeats; another machine with the device takes over, drops the sessions of
  that model, measures it from the beginning, and says so in its notes. The builds are reused.
- The command that follows the batch, or the one that resumes it, saves champions and new evidence
  on its own machine; it derives them from the state.

The modules:

- A tuning: `batch.py` plans the models of one command and tunes them one after another, `tuning.py`
  is the loop for one model, `trial.py` runs one trial; `workplace.py` builds, verifies and traces
  on the machine, `place.py` names what the loop needs of that, `measuring.py` compares,
  `decision.py` turns comparisons into verdicts. `record.py` defines the records and writes them.
- On a fleet: `leased.py` does the work under a lease.
- Its plan: `insight.py` gathers the facts about a model, `knowledge.py` reads existing knowledge
  (the findings that come with modelmill, those in the user's folder, and the evidence there); from
  both, `ordering.py` decides which hypotheses are tried, in which order and why.
- Its results: `conclusion.py` keeps the champion of the trials, and adds evidence and drafts to the
  knowledge base; `champions.py` writes the file of champions and says what has changed since then;
  `exported.py` writes all sessions to a file and judges such files again; `document.py` shows
  tunings.
"""
