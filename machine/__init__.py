"""What this computer is and offers, for all rooms above.

Here belongs what is true of the machine and of the processes on it, whatever they build:

- processes: who one is (its pid alone does not say), whether it has ended, it and all it started;
- files: written whole or not at all, flushed, linked, removed; a full disk reported as such;
- folders and names that a killed process leaves behind, and who may remove them;
- locks, and waits that say what they wait for;
- one ledger for all processes of the machine, in which memory, disk and quiet are reserved.

What knows of models, cells, the store's layout, a feed's protocol, SQL or Prefect does not belong
here, nor do messages that only one room can word: functions raise `OSError` or an error of this
package, and the room says what it means to its user. `files` and `disk` use the standard
library alone, because engines in foreign interpreters import them; the others may need psutil and
filelock.
"""
