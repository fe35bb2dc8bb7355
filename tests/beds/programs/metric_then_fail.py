"""metric_then_fail.py FOLDER TIMES [STEP]: appends a metric line (progress), then exits with 3 in the first TIMES
attempts. Without STEP each attempt comes one step further."""

import json
import os
import sys
import time

import ready

with open(os.environ["LOCKSTEP_METRICS"], "a") as out:
    out.write(json.dumps({"t": time.time(), "attempt": ready.ATTEMPT, "rank": ready.RANK, "step": int(sys.argv[3]) if len(sys.argv) > 3 else ready.ATTEMPT + 1,
                          "scalars": {"loss": 1.0}}) + "\n")
ready.mark(sys.argv[1], f"attempt-{ready.ATTEMPT}", os.environ["MASTER_PORT"])
ready.wait_for_all(sys.argv[1], f"attempt-{ready.ATTEMPT}")
print("attempt", ready.ATTEMPT, flush=True)
sys.exit(3 if ready.ATTEMPT < int(sys.argv[2]) else 0)
