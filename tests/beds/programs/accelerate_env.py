"""accelerate_env.py FOLDER: what accelerate makes of our environment, and a real sum over ranks through it."""

import json
import sys

import torch
from accelerate import Accelerator

import ready

accelerator = Accelerator(cpu=True)
total = accelerator.reduce(torch.tensor([float(accelerator.process_index + 1)]), reduction="sum")
ready.mark(sys.argv[1], "result", json.dumps(
    {"processes": accelerator.num_processes, "index": accelerator.process_index,
     "local": accelerator.local_process_index, "type": str(accelerator.distributed_type), "sum": total.item()}))
accelerator.end_training()
