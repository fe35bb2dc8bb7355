"""Prints a line for each step, 20 a second, until the file named by the first argument exists."""

import os
import sys
import time

step = 0
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
    step += 1
    print(f"step {step}/100000 | loss {1 / step:.4f}", flush=True)
