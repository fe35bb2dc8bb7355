"""The training program that the cases break: an ordinary DDP loop with a bar, loss lines, a loader and checkpoints.

program(hooks) puts lines of a case where they belong, so that a traceback shows code of a user, not of a test."""

import textwrap

TEXT = '''import argparse
import datetime
import json
import logging
import os
import sys
import time
import warnings

@IMPORTS@
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from tqdm import tqdm

torch.set_num_threads(1)
logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", level=logging.INFO)
logger = logging.getLogger(__name__)


class Windows(Dataset):
    """Windows of a long synthetic series."""

    def __init__(self, length=512, width=16):
        self.length, self.width = length, width
        @DATASET@

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(self.width, generator=generator)
        y = (x.sum() > 0).long()
        @ITEM@
        return x, y


class Net(nn.Module):
    def __init__(self, width=16, hidden=32, classes=2):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, classes)
        @MODEL@

    def forward(self, x):
        x = self.body(x)
        @FORWARD@
        return self.head(x)


def save_checkpoint(model, optimizer, step, folder="checkpoints"):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"step_{step:06d}.pt")
    @SAVE@
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
    logger.info("saved %s", path)


def train_one_epoch(model, loader, optimizer, epoch, args, rank):
    loss_function = nn.CrossEntropyLoss()
    bar = tqdm(total=args.steps, desc=f"Epoch {epoch}", disable=rank != 0, mininterval=0.2)
    for step, (x, y) in enumerate(loader):
        if step >= args.steps:
            break
        global_step = epoch * args.steps + step
        @BATCH@
        optimizer.zero_grad()
        logits = model(x)
        loss = loss_function(logits, y)
        @LOSS@
        loss.backward()
        @BACKWARD@
        optimizer.step()
        value = loss.item()
        bar.update(1)
        bar.set_postfix(loss=f"{value:.4f}")
        if rank == 0 and step % args.log_every == 0:
            print({"loss": round(value, 4), "grad_norm": 0.91, "learning_rate": args.lr, "epoch": round(epoch + step / args.steps, 2)})
        time.sleep(args.pace)
    bar.close()
    @EPOCH@


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=2)
    parser.add_argument("--pace", type=float, default=0.02)
    parser.add_argument("--timeout", type=float, default=600)
    args = parser.parse_args()
    @ARGS@
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=args.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    if rank == 0:
        logger.info("world size %d, torch %s", world, torch.__version__)
        warnings.warn("`evaluation_strategy` is deprecated and will be removed in version 4.46. Use `eval_strategy` instead", FutureWarning)
    @START@
    dataset = Windows()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=args.workers@LOADER@)
    model = Net()
    @BUILD@
    model = DDP(model@DDP@)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    @RESUME@
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_one_epoch(model, loader, optimizer, epoch, args, rank)
        if rank == 0:
            save_checkpoint(model, optimizer, (epoch + 1) * args.steps)
        dist.barrier()
    @END@
    if rank == 0:
        print({"train_runtime": 12.7, "train_samples_per_second": 80.4, "train_loss": 0.41, "epoch": float(args.epochs)})
        logger.info("training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''


def program(**hooks):
    lines = []
    for line in TEXT.split("\n"):
        stripped = line.strip()
        if stripped.startswith("@") and stripped.endswith("@"):
            text = hooks.pop(stripped.strip("@").lower(), None)
            if text:
                indent = line[:len(line) - len(line.lstrip())]
                lines += [(indent + part) if part else part for part in textwrap.dedent(text).strip("\n").split("\n")]
            continue
        for word in ("LOADER", "DDP"):
            if f"@{word}@" in line:
                text = hooks.pop(word.lower(), "")
                line = line.replace(f"@{word}@", f", {text}" if text else "")
        lines.append(line)
    if hooks:
        raise ValueError(f"no such place in the program: {sorted(hooks)}")
    return "\n".join(lines)
