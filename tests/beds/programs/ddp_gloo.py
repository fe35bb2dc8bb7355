"""ddp_gloo.py FOLDER [STEPS]: DistributedDataParallel on Gloo, linear regression on synthetic data.

Every rank trains on its own share; afterwards all ranks compare their weights. Rank 0 writes FOLDER/result.0 (JSON):
first and last loss, world size, whether all ranks hold the same weights.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ready

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(7)
truth = torch.randn(8, 1)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(100 + dist.get_rank())
losses = []
for step in range(int(sys.argv[2]) if len(sys.argv) > 2 else 20):
    x = torch.randn(32, 8, generator=generator)
    loss = torch.nn.functional.mse_loss(model(x), x @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    print(f"step {step} loss {loss.item():.4f}", flush=True)
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
gathered = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(gathered, weights)
if dist.get_rank() == 0:
    ready.mark(sys.argv[1], "result", json.dumps(
        {"first": losses[0], "last": losses[-1], "world": dist.get_world_size(),
         "same": all(torch.equal(weights, other) for other in gathered)}))
dist.barrier()
dist.destroy_process_group()
# PyTorch's threads sometimes abort an interpreter that shuts down on a busy machine; that is not what is tested here.
os._exit(0)
