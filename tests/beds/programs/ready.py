"""What the programs of this folder share: a mark in a folder saying that this rank has come to a point."""

import os
import pathlib
import time

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
ATTEMPT = int(os.environ.get("LOCKSTEP_ATTEMPT", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))


def mark(folder, word="ready", text=None):
    """Publishes <folder>/<word>.<rank>; its content is this process id unless `text` says otherwise."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{word}.{RANK}.{os.getpid()}"
    part.write_text(str(os.getpid()) if text is None else text)
    part.rename(folder / f"{word}.{RANK}")


def wait_for_all(folder, word="ready", world=WORLD, seconds=60):
    """Waits until every rank has marked; the folder must be common to all of them."""
    deadline = time.monotonic() + seconds
    while not all((pathlib.Path(folder) / f"{word}.{r}").exists() for r in range(world)):
        if time.monotonic() > deadline:
            raise SystemExit(f"rank {RANK}: not all ranks came to {word!r}")
        time.sleep(0.005)
