"""Steps without torch, and a pause of some kind between them.

usage: pauses.py KIND SECONDS     KIND: slow (a step now and then), write (writes a file), sleep (does nothing at all),
                                  loaded (nothing either, after a bar that is full)
"""

import os
import sys
import time

kind, seconds = sys.argv[1], float(sys.argv[2])
for step in range(3):
    if kind == "loaded":
        print(f"shards: {step + 1}/3 [00:01<00:00, 3.00it/s]", flush=True)
    else:
        print(f"step {step}/9 | loss 1.0", flush=True)
    time.sleep(0.1)


def pause():
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if kind == "slow":
            time.sleep(1)
            print(f"step {int(100 - (end - time.monotonic()))}/999 | loss 1.0", flush=True)
        elif kind == "write":
            with open(os.path.join(os.environ["LOCKSTEP_RUN_DIR"], f"big.{os.environ['RANK']}"), "wb") as file:
                file.write(bytes(1 << 18))
            time.sleep(0.2)
        else:
            time.sleep(0.2)


pause()
