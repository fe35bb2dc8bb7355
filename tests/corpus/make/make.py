#!/usr/bin/env python3
"""Makes the labelled logs again.

    sudo .venv/bin/python tests/corpus/make/make.py split            # which names are held out (from the name alone)
    sudo .venv/bin/python tests/corpus/make/make.py all              # every case that is not there yet
    sudo .venv/bin/python tests/corpus/make/make.py again NAME...    # these, anew
    sudo .venv/bin/python tests/corpus/make/make.py labels           # only label.json, from the cases' definitions
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE.parent
sys.path.insert(0, str(HERE))

import register  # noqa: E402
import stage as stages  # noqa: E402
import undiagnosed  # noqa: E402

for module in ("real_python", "real_process", "real_network", "real_data", "real_slurm", "real_shapes", "real_gloo", "form_gpu", "form_cluster",
               "form_software", "form_shapes", "form_wide", "healthy"):
    if (HERE / f"{module}.py").exists():
        __import__(module)

# What must not be read in a log: folders of the machine it was made on.
REPLACED = [(str(stages.ROOT), "/opt/lockstep"), (stages.BASE, "/opt/python")]
FORBIDDEN = re.compile(r"/wo" r"rk/|/tmp/stage-|/ro" r"ot/|lockstep-net-|\.py" r"env")


def names(file):
    return [line.strip() for line in (CORPUS / file).read_text().splitlines() if line.strip() and line[0] != "#"]


def part(name):
    if name.startswith("healthy/"):
        return "healthy"
    return "heldout" if int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 3 == 0 else "dev"


def folder(name):
    return CORPUS / name if name.startswith("healthy/") else CORPUS / part(name) / name


def neutral(data, work):
    text = data.decode("utf-8", "surrogateescape")
    for old, new in [(str(work), stages.TRAIN), *REPLACED]:
        text = text.replace(old, new)
    text = re.sub(r"/tmp/lockstep-net-[^/\s\"']*/slurm/spool/\w+", "/var/spool/slurmd", text)
    text = re.sub(r"/tmp/lockstep-net-[^/\s\"']*/(\w[\w-]*)", r"/home/user", text)
    return text.encode("utf-8", "surrogateescape")


def write_label(case):
    target = folder(case.name)
    (target / "label.json").write_text(json.dumps(case.label, indent=1, ensure_ascii=False) + "\n")


def keep(case, work):
    log = work / "log"
    undiagnosed.clean(log)
    files = [p for p in sorted(log.rglob("*")) if p.is_file()]
    whole = ""
    for path in files:
        data = neutral(path.read_bytes(), work)
        path.chmod(0o644)
        path.write_bytes(data)
        whole += data.decode(errors="replace")
    if not files or not whole.strip():
        raise RuntimeError("no log")
    found = FORBIDDEN.search(whole)
    if found:
        raise RuntimeError(f"a path of this machine in the log: {whole[max(0, found.start() - 80):found.end() + 80]!r}")
    if case.label["names"] and not any(n in whole for n in case.label["names"]):
        raise RuntimeError(f"none of {case.label['names']} in the log: the failure did not come about\n{whole[-3000:]}")
    target = folder(case.name)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    shutil.copytree(log, target / "log")
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    write_label(case)
    return len(whole)


def make(case, bed=None):
    stage = stages.Stage(case.name)
    try:
        case.make(stage, bed) if case.bed else case.make(stage)
        size = keep(case, stage.work)
        print(f"ok    {part(case.name):8} {case.name} ({size} bytes)", flush=True)
        return True
    except Exception as error:  # the other cases go on
        print(f"FAIL  {part(case.name):8} {case.name}: {error}", flush=True)
        if os.environ.get("CORPUS_TRACE"):
            traceback.print_exc()
        return False
    finally:
        stage.close()


def make_all(chosen):
    failed = [c.name for c in chosen if not c.bed and c.label["made"] != "real" and not make(c)]
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CORPUS_JOBS", "2"))) as pool:
        real = [c for c in chosen if not c.bed and c.label["made"] == "real"]
        failed += [c.name for c, good in zip(real, pool.map(make, real)) if not good]
    slurm = [c for c in chosen if c.bed == "slurm"]
    if slurm:
        import slurm_bed

        with slurm_bed.Bed() as bed:
            failed += [c.name for c in slurm if not make(c, bed)]
    print(f"{len(chosen) - len(failed)} made, {len(failed)} failed: {failed}")
    return 1 if failed else 0


def main():
    word, rest = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("help", [])
    wanted = names("cases.txt") + ["healthy/" + n for n in names("healthy.txt")]
    unknown = sorted(set(register.CASES) - set(wanted))
    if unknown:
        sys.exit(f"not in cases.txt: {unknown}")
    if word == "split":
        for name in names("cases.txt"):
            print(f"{part(name):8} {name}")
    elif word == "missing":
        for name in wanted:
            if name not in register.CASES:
                print(f"no maker: {name}")
            elif not (folder(name) / "label.json").exists():
                print(f"not made: {name}")
    elif word == "all":
        return make_all([c for n in wanted if (c := register.CASES.get(n)) and not (folder(n) / "label.json").exists()])
    elif word == "again":
        return make_all([register.CASES[n] for n in rest])
    elif word == "labels":
        for case in register.CASES.values():
            if folder(case.name).exists():
                write_label(case)
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
