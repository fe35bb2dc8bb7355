#!/usr/bin/env python3
"""Read or encode again? What `policy: auto` chooses over storage from 0.1 to 4 GB/s, beside reading all and encoding all.

    python3 bench/arbitration.py --folder DIR [--speeds 0.1,0.5,1,2,4] [--encode-ms 3.9]    (as root)

Records of 5.6 MB, verified. The kernel limits the speed: blkio.throttle.read_bps_device of a control group (cgroup v1) for
the block device that DIR lies on, so the device must be faster than the highest speed: ext4 on a loop device over tmpfs
is (bench/feature_cache.py says how to make one). Encoding sleeps, as a CPU does while a GPU encodes; 3.9 ms a record
equal 1.44 GB/s of reading."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "build/release/bench/feature_cache_bench"
GROUPS = pathlib.Path("/sys/fs/cgroup/blkio")
SIZE, SECONDS, BOUND = 5627904, 7, 1.05


class Throttle:
    """A control group whose reads of the device are limited."""

    def __init__(self, folder):
        number = os.stat(folder).st_dev
        self.device = f"{os.major(number)}:{os.minor(number)}"
        self.group = GROUPS / f"lockstep-bench-{os.getpid()}"

    def __enter__(self):
        self.group.mkdir()
        return self

    def __exit__(self, *_):
        self.group.rmdir()

    def run(self, bytes_per_second, command):
        (self.group / "blkio.throttle.read_bps_device").write_text(f"{self.device} {int(bytes_per_second)}")
        join = f"echo $$ > {self.group}/cgroup.procs; exec \"$@\""
        return json.loads(subprocess.run(["sh", "-c", join, "sh", *map(str, command)], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--speeds", default="0.1,0.3,0.7,1,1.4,2,4", help="GB/s")
    parser.add_argument("--encode-ms", type=float, default=3.9)
    parser.add_argument("--records", type=int, default=266)
    args = parser.parse_args()
    if not GROUPS.exists():
        raise SystemExit(f"{GROUPS} is not there: this bench needs the blkio controller of cgroup v1")
    root = args.folder / "arbitration"
    root.mkdir(parents=True)
    try:
        subprocess.run([PROGRAM, "write", root, str(args.records), str(SIZE)], check=True, capture_output=True)
        live = args.encode_ms / 1e3
        print("| storage | reading all | encoding all | auto | of them read | auto against the better one |\n" + "|---" * 6 + "|")
        with Throttle(root) as throttle:
            for speed in map(float, args.speeds.split(",")):
                cost = {"read": SIZE / (speed * 1e9), "live": live, "auto": min(live, SIZE / (speed * 1e9))}
                rate = {}
                for policy in ("read", "live", "auto"):
                    got = throttle.run(speed * 1e9, [PROGRAM, "arbitrate", root, args.records, SIZE,
                                                     int(SECONDS / cost[policy]), policy, int(args.encode_ms * 1e3)])
                    rate[policy] = got["records"] / got["seconds"]
                share = got["read"] / got["records"]
                ratio = rate["auto"] / max(rate["read"], rate["live"])
                print(f"| {speed:g} GB/s | {rate['read']:.0f} records/s | {rate['live']:.0f} | {rate['auto']:.0f} | {share:.0%} | "
                      f"{ratio:.2f}x, {'met' if ratio * BOUND >= 1 else 'missed'} |", flush=True)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
