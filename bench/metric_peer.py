"""What one metric call costs a Python training thread: steps of ten scalars at 1 kHz, as metric_bench has them. Prints one
JSON object: p50 and p99 nanoseconds for one scalar, and the version of the package.

    metric_peer.py wandb|tensorboard [seconds]
"""

import json
import os
import sys
import tempfile
import time

which, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
SCALARS = [f"group/metric_{i}" for i in range(10)]
calls = []
with tempfile.TemporaryDirectory() as folder:
    if which == "wandb":
        os.environ.update(WANDB_SILENT="true", WANDB_CONSOLE="off")
        import wandb

        version = wandb.__version__
        run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(x_disable_stats=True))

        def step(number):
            # One call logs the scalars of a step; its cost is shared by them.
            begin = time.perf_counter_ns()
            run.log({name: 0.1 * number for name in SCALARS}, step=number)
            calls.extend([(time.perf_counter_ns() - begin) / len(SCALARS)] * len(SCALARS))
    else:
        import tensorboard
        from torch.utils.tensorboard import SummaryWriter

        version = tensorboard.__version__
        writer = SummaryWriter(folder)

        def step(number):
            for name in SCALARS:
                begin = time.perf_counter_ns()
                writer.add_scalar(name, 0.1 * number, number)
                calls.append(time.perf_counter_ns() - begin)

    start = time.perf_counter()
    for number in range(int(seconds * 1000)):
        step(number)
        time.sleep(max(0.0, start + (number + 1) / 1000 - time.perf_counter()))
    if which == "wandb":
        run.finish()
    else:
        writer.close()
calls.sort()
print(json.dumps({"p50_ns": calls[len(calls) // 2], "p99_ns": calls[int(0.99 * len(calls))], "calls": len(calls), "version": version}))
