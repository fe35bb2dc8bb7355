"""Writes metric lines with the times of its stages, 20 a second, until the file named by the first argument exists."""

import json
import os
import sys
import time

rank, attempt = int(os.environ["RANK"]), int(os.environ["LOCKSTEP_ATTEMPT"])
step = 0
with open(os.environ["LOCKSTEP_METRICS"], "a", buffering=1) as lines:
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
        step += 1
        scalars = {"loss": 1 / step, "rank/time/step": 0.05, "rank/time/data": 0.01, "rank/time/collective": 0.02,
                   "rank/wait/peer": (rank + 1) % int(os.environ["WORLD_SIZE"]), "rank/wait/seconds": 0.015}
        lines.write(json.dumps({"t": time.time(), "attempt": attempt, "rank": rank, "step": step, "scalars": scalars}) + "\n")
