#!/usr/bin/env python3
"""Whether `lockstep doctor hardware` sees what `nvidia-smi` sees, field by field, and whether the torch and NCCL it says
a job would load are those that Python really loads. Prints every agreement and difference; exit code 1 on a difference.

    python3 bench/gpu_hardware.py --lockstep build/bin/lockstep [--python /venv/bin/python]

What moves between two readings (temperature, power, clocks, memory in use) may differ by a tolerance, which is shown."""

import argparse
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

ABSENT = ("N/A", "[N/A]", "", "Requested functionality has been deprecated", "Not Supported", "[Not Supported]")
RECOVERY = {"None": "none", "Reset": "gpu reset", "GPU Reset": "gpu reset", "Reboot": "node reboot", "Node Reboot": "node reboot",
            "Drain P2P": "drain P2P", "Drain and Reset": "drain and reset"}
REASONS = ("sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


class Comparison:
    def __init__(self):
        self.rows, self.differences = [], 0

    def same(self, field, ours, theirs, tolerance=None):
        """theirs None: nvidia-smi does not say, which is no difference as long as we do not claim much either."""
        if theirs is None:
            verdict = "not said by nvidia-smi"
        elif ours is None:
            verdict = "DIFFERENT"
        elif tolerance is None:
            verdict = "same" if ours == theirs else "DIFFERENT"
        else:
            verdict = f"same within {tolerance:g}" if abs(ours - theirs) <= tolerance else "DIFFERENT"
        self.differences += verdict == "DIFFERENT"
        self.rows.append((field, str(ours), str(theirs), verdict))

    def print(self):
        widths = [max(len(row[i]) for row in [("field", "lockstep", "nvidia-smi", ""), *self.rows]) for i in range(3)]
        for row in [("field", "lockstep", "nvidia-smi", "verdict"), *self.rows]:
            print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)), row[3], sep="  ")


def text(node, path):
    found = node.find(path)
    value = (found.text or "").strip() if found is not None else ""
    return None if value in ABSENT else value


def number(node, path):
    value = text(node, path)
    found = re.match(r"-?\d+(\.\d+)?", value) if value else None
    return float(found.group()) if found else None


def flag(node, path, yes):
    value = text(node, path)
    return None if value is None else value == yes


def total(node, *paths):
    values = [number(node, path) for path in paths]
    known = [value for value in values if value is not None]
    return int(sum(known)) if known else None


def pci(bus_id):
    """00000000:3B:00.0 -> 0000:3b:00.0"""
    domain, rest = bus_id.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def mebibytes(count):
    return None if count is None else count / 2**20


def links(uuid, run):
    """(active, all) by `nvidia-smi nvlink -s`; nothing without NVLink."""
    lines = run(["nvidia-smi", "nvlink", "-s", "-i", uuid])
    found = re.findall(r"Link \d+:\s*(.+)", lines)
    return (sum("GB/s" in one for one in found), len(found)) if found else (None, None)


def compare_gpu(same, ours, theirs, run):
    name = f"gpu {ours['index']} "
    same(name + "name", ours["name"], text(theirs, "product_name"))
    same(name + "uuid", ours["uuid"], text(theirs, "uuid"))
    same(name + "pci", ours["pci"], pci(text(theirs, "pci/pci_bus_id")))
    same(name + "memory MiB", mebibytes(ours["memory_total"]), number(theirs, "fb_memory_usage/total"), 1)
    same(name + "memory used MiB", mebibytes(ours["memory_used"]), number(theirs, "fb_memory_usage/used"), 600)
    same(name + "mig", ours["mig"], flag(theirs, "mig_mode/current_mig", "Enabled"))
    same(name + "ecc", ours["ecc"], flag(theirs, "ecc_mode/current_ecc", "Enabled"))
    volatile = "ecc_errors/volatile/"
    same(name + "ecc corrected", ours["ecc_corrected"], total(theirs, volatile + "sram_correctable", volatile + "dram_correctable"))
    same(name + "ecc uncorrected", ours["ecc_uncorrected"],
         total(theirs, volatile + "sram_uncorrectable", volatile + "sram_uncorrectable_parity", volatile + "sram_uncorrectable_secded",
               volatile + "dram_uncorrectable"))
    same(name + "rows remapped", ours["remapped_uncorrectable"], total(theirs, "remapped_rows/remapped_row_unc"))
    same(name + "remapping pending", ours["remap_pending"], flag(theirs, "remapped_rows/remapped_row_pending", "Yes"))
    same(name + "remapping failed", ours["remap_failed"], flag(theirs, "remapped_rows/remapped_row_failure", "Yes"))
    action = text(theirs, "gpu_recovery_action")
    same(name + "recovery action", ours["recovery_action"], RECOVERY.get(action, action))
    fabric = text(theirs, "fabric/state")
    same(name + "fabric", ours["fabric"], fabric.lower() if fabric else None)
    same(name + "SM clock max", ours["sm_clock_max"], number(theirs, "max_clocks/sm_clock"))
    same(name + "SM clock", ours["sm_clock"], number(theirs, "clocks/sm_clock"), ours["sm_clock_max"] or 0)
    same(name + "memory clock", ours["memory_clock"], number(theirs, "clocks/mem_clock"), 3000)
    same(name + "temperature", ours["temperature"], number(theirs, "temperature/gpu_temp"), 8)
    readings = theirs.find("gpu_power_readings")
    if readings is None:
        readings = theirs.find("power_readings")
    power = None if readings is None else next((number(readings, path) for path in ("average_power_draw", "power_draw", "instant_power_draw")
                                                if number(readings, path) is not None), None)
    same(name + "power W", ours["power_watts"], power, 120)
    same(name + "utilisation", ours["utilisation"], number(theirs, "utilization/gpu_util"), 100)
    gen, width = "pci/pci_gpu_link_info/pcie_gen/", "pci/pci_gpu_link_info/link_widths/"
    same(name + "PCIe generation max", ours["pcie_gen_max"], number(theirs, gen + "max_link_gen"))
    same(name + "PCIe width max", ours["pcie_width_max"], number(theirs, width + "max_link_width"))
    same(name + "PCIe width", ours["pcie_width"], number(theirs, width + "current_link_width"))
    for node in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = theirs.find(node)
        if reasons is not None:
            active = {r.replace("_", " ") for r in REASONS for one in reasons if one.tag.endswith("_" + r) and one.text == "Active"}
            same(name + "slowed by", sorted(set(ours["throttle"]) - {"display clock setting"}), sorted(active))
    pids = {int(p.text) for info in theirs.findall("processes/process_info") for p in info.findall("pid")
            if "C" in (text(info, "type") or "C")}
    same(name + "processes", sorted(p["pid"] for p in ours["processes"]), sorted(pids))
    active, everything = links(ours["uuid"], run)
    same(name + "NVLinks active", ours["nvlinks_active"], active)
    same(name + "NVLinks", ours["nvlinks"], everything)
    capability = run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader", "-i", ours["uuid"]]).strip()
    same(name + "compute capability", ours["compute_capability"], capability if re.fullmatch(r"\d+\.\d+", capability) else None)


LOADED = """
import json, torch
import torch.distributed
path = next((line.split()[-1] for line in open('/proc/self/maps') if 'libnccl.so' in line), None)
version = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else None
print(json.dumps({'torch': torch.__version__, 'nccl': '.'.join(map(str, version[:3])) if version else None, 'path': path}))
"""


def compare_libraries(same, ours):
    done = subprocess.run([ours["interpreter"], "-c", LOADED], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        print(f"(torch is not compared: {ours['interpreter']} cannot import it)")
        return
    loaded = json.loads(done.stdout.strip().splitlines()[-1])
    nccl = ours["nccl"] or {}
    same("torch loaded", (ours["torch"] or {}).get("version"), loaded["torch"])
    same("NCCL loaded", nccl.get("version"), loaded["nccl"])
    if loaded["path"]:
        same("NCCL path", nccl.get("path"), loaded["path"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/bin/lockstep")
    parser.add_argument("--python", help="interpreter whose torch and NCCL are compared")
    parser.add_argument("--xml", help="a file with the output of nvidia-smi -q -x, instead of asking")
    arguments = parser.parse_args()

    def run(command):
        if arguments.xml:
            return ""
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout

    theirs = xml.fromstring(open(arguments.xml, encoding="utf-8").read() if arguments.xml else run(["nvidia-smi", "-q", "-x"]))
    command = [arguments.lockstep, "doctor", "hardware", "--json", "--time"]
    done = subprocess.run(command + (["--python", arguments.python] if arguments.python else []), capture_output=True, text=True,
                          timeout=120, check=True)
    ours = json.loads(done.stdout)
    comparison = Comparison()
    same = comparison.same
    same("driver", ours["driver"], text(theirs, "driver_version"))
    same("driver library", ours["driver_library"], text(theirs, "driver_version"))
    same("CUDA", ours["cuda"], text(theirs, "cuda_version"))
    gpus = theirs.findall("gpu")
    same("GPUs", len(ours["gpus"]), len(gpus))
    by_uuid = {text(gpu, "uuid"): gpu for gpu in gpus}
    for gpu in ours["gpus"]:
        if gpu["uuid"] in by_uuid:
            compare_gpu(same, gpu, by_uuid[gpu["uuid"]], run)
        else:
            same(f"gpu {gpu['index']} uuid", gpu["uuid"], "not there")
    if ours["interpreter"] and not arguments.xml:
        compare_libraries(same, ours)
    comparison.print()
    print(done.stderr.strip())
    for note in ours["notes"]:
        print("note:", note)
    agree = sum(row[3].startswith("same") for row in comparison.rows)
    print(f"{agree} agree, {comparison.differences} differ, {len(comparison.rows) - agree - comparison.differences} not said by nvidia-smi")
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main())
