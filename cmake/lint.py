#!/usr/bin/env python3
"""`make lint`: layout (clang-format), clang-tidy, includes, wording, Python syntax. Prints findings, exits 1 if any.

clang-tidy takes seconds per file, so a clean result is remembered in build/lint under a digest of everything it depends
on: the file, the project headers it reaches, its command line and .clang-tidy.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import compile_commands

ROOT = pathlib.Path(__file__).resolve().parents[1]
STAMPS = ROOT / "build" / "lint"
DATABASE = ROOT / "build" / "release" / "compile_commands.json"
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)

# The project speaks of itself, not of how or where it was made. Split, so that this file does not find itself.
WORDS = re.compile(r"\b(?:sub" r"agents?|this ses" r"sion|shared/(?:fac" r"ts|des" r"ign)|is" r"sue #?\d+|TO" r"DO|FIX" r"ME|X" r"XX)\b"
                   r"|(?<![\w.])/(?:wo" r"rk|ro" r"ot|opt/whe" r"els|tmp/pe" r"ers)/", re.I)
# Words this project once had of its own, and the field's word for the same thing. History (decisions, CHANGELOG) and what
# others wrote (test inputs) keep them; so does a line that reads an old format and says so.
RETIRED = {
    r"companions?": "discriminator, or say which program",
    r"Record(?:er|ing)s?(?! [a-z])(?<!Flight Recorder)": "CudaGraph, GraphPool",
    r"receptions?": "rendezvous server",
    r"Seats?|Gatherings?|Meetings?": "participant, launcher group, rendezvous",
    r"doors?": "port, rendezvous",
    r"guests?": "rendezvous client",
    r"witness(?:es)?": "finding, evidence",
}
RETIRED_WORDS = re.compile(r"\b(?:" + "|".join(RETIRED) + r")\b")
KEPT = re.compile(r"^(?:docs/decisions/|CHANGELOG\.md|tests/(?:corpus|fuzz/corpus|hardware/trees|place/fixtures|diagnose|lint|hang|integration)/|"
                  r"src/diagnose/signatures\.tsv|src/lint/\w+\.inc|cmake/lint\.py)")
TEXT = {".cc", ".h", ".py", ".md", ".cmake", ".txt", ".sh", ".json", ".yaml", ".yml", ""}


def tracked():
    """Files git knows or would add."""
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def check_format(files):
    sources = [str(f) for f in files if f.suffix in (".cc", ".h")]
    done = subprocess.run(["clang-format-19", "--dry-run", "-Werror", *sources], capture_output=True, text=True)
    return [line for line in done.stderr.splitlines() if "error:" in line]


def check_text(files):
    found = []
    for file in files:
        if file.suffix not in TEXT:
            continue
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        name = file.relative_to(ROOT)
        for number, line in enumerate(text.splitlines(), 1):
            if WORDS.search(line):
                found.append(f"{name}:{number}: wording: {line.strip()}")
            if not KEPT.match(str(name)) and "before version" not in line and (word := RETIRED_WORDS.search(line)):
                use = next(use for old, use in RETIRED.items() if re.fullmatch(old, word[0]))
                found.append(f"{name}:{number}: retired word '{word[0]}' (write: {use}): {line.strip()}")
            if file.suffix in (".cc", ".h") and re.match(r'\s*#\s*include\s+"(\.\./|src/|/)', line):
                found.append(f"{name}:{number}: include a header as \"folder/file.h\": {line.strip()}")
        if file.suffix == ".h" and "#pragma once" not in text:
            found.append(f"{name}: no #pragma once")
        if file.suffix == ".h" and not text.startswith("//"):
            found.append(f"{name}: opens without a paragraph that says what it is")
        if file.suffix in (".cc", ".h") and text.count("\n") > 600:
            found.append(f"{name}: {text.count(chr(10))} lines; 600 is the limit")
    return found


def check_python(files):
    found = []
    for file in files:
        if file.suffix == ".py":
            try:
                compile(file.read_text(), str(file), "exec")
            except SyntaxError as error:
                found.append(f"{file.relative_to(ROOT)}:{error.lineno}: {error.msg}")
    return found


def reached(file, roots, seen):
    """The project files a file includes, directly or not."""
    if file in seen:
        return seen
    seen.add(file)
    for name in INCLUDE.findall(file.read_bytes()):
        for root in (file.parent, *roots):
            candidate = root / name.decode()
            if candidate.is_file():
                reached(candidate, roots, seen)
                break
    return seen


def digest(entry):
    parts = hashlib.sha256((ROOT / ".clang-tidy").read_bytes() + entry["command"].encode())
    for file in sorted(reached(pathlib.Path(entry["file"]), (ROOT / "src", ROOT / "cmake", ROOT / "tests"), set())):
        parts.update(file.read_bytes())
    return parts.hexdigest()


def tidy(entry):
    stamp = STAMPS / digest(entry)
    if stamp.exists():
        return None
    done = subprocess.run(["clang-tidy-19", "--quiet", "-p", str(STAMPS), entry["file"]], capture_output=True, text=True)
    findings = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode == 0:
        stamp.touch()
        return None
    return "\n".join(findings) or done.stderr


def check_tidy(files):
    wanted = {str(f) for f in files}
    entries = {}
    for entry in compile_commands.alone(DATABASE):  # each file alone, so that one that lacks an include is found
        if entry["file"] in wanted and "/elf/" not in entry["file"]:
            entries.setdefault(entry["file"], entry)
    STAMPS.mkdir(parents=True, exist_ok=True)
    (STAMPS / "compile_commands.json").write_text(json.dumps(list(entries.values())))
    only = sys.argv[1:]
    chosen = [e for e in entries.values() if not only or any(word in e["file"] for word in only)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in concurrent.futures.as_completed([pool.submit(tidy, entry) for entry in chosen]):
            if done.result():
                yield done.result()


def main():
    files = tracked()
    checks = {"clang-format": check_format, "wording and includes": check_text, "Python": check_python, "clang-tidy": check_tidy}
    bad = 0
    for name, check in checks.items():
        count = 0
        for count, finding in enumerate(check(files), 1):
            print(finding, flush=True)
        bad += count
        print(f"{name}: {count or 'no'} finding{'' if count == 1 else 's'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
