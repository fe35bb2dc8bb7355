"""The page about torchrun's flags against three things: the help of the installed torchrun, the program's own table, and
torchrun's own parser on the command lines the unit tests use."""

import json
import re
import subprocess

import harness

PAGE = harness.ROOT / "docs" / "torchrun-flags.md"
LINES = harness.ROOT / "tests" / "cli" / "torchrun_lines.json"

# The parser of torch.distributed.launch is torchrun's plus --use-env. Prints one JSON list: for each command line what
# differs from an empty one.
PARSE = """
import json, os, sys
from torch.distributed.launch import parse_args

def parsed(argv, variables):
    for name in [name for name in os.environ if name.startswith("PET_")]:
        del os.environ[name]
    os.environ.update(variables)
    return vars(parse_args(argv))

default = parsed(["program"], {})
result = []
for line in json.load(open(sys.argv[1])):
    args = parsed(line["argv"], line.get("variables", {}))
    said = {key: value for key, value in args.items() if value != default[key]}
    said["program"], said["args"] = args["training_script"], args["training_script_args"]
    for key in ("training_script", "training_script_args", "use_env", "monitor_interval", "start_method"):
        said.pop(key, None)
    result.append(said)
print(json.dumps(result))
"""


def python(*args):
    harness.require("torch")
    done = subprocess.run([harness.PYTHON, *args], capture_output=True, text=True, env=harness.clean_env(), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fold(name):
    return name.replace("_", "-")


def help_flags():
    """Every flag of the installed torchrun: a set of frozensets of spellings, hyphens only."""
    text = python("-m", "torch.distributed.run", "--help")
    options = text[text.index("\noptions:") :]
    flags = set()
    for line in options.splitlines():
        # A flag begins in the third column; its help is indented far deeper.
        if re.match(r"  -", line):
            names = re.findall(r"(?:^|[\s,])(--?[a-zA-Z][\w-]*)", line.split("  ", 2)[1] if "  " in line[2:] else line)
            flags.add(frozenset(fold(name) for name in names))
    return flags


def page_rows():
    """flag spellings -> (status, reason), from the first table of the page."""
    rows = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `-"):
            assert len(cells) == 3, line
            names = frozenset(re.findall(r"`(--?[\w-]+)`", cells[0]))
            assert names not in rows, f"two rows for {names}"
            rows[names] = (cells[1], cells[2])
    return rows


class Page(harness.Case):
    def test_every_flag_of_the_installed_torchrun_has_a_row_and_no_row_is_about_another(self):
        flags = help_flags()
        self.assertGreater(len(flags), 25, "the help was not understood")
        self.assertEqual(set(page_rows()), flags)

    def test_the_status_and_the_reason_are_those_of_the_program(self):
        done = harness.lockstep("run", "--dump-flags")
        self.assertEqual(done.returncode, 0, done.stderr)
        table = {}
        for row in json.loads(done.stdout):
            if row["torchrun"] != "ours":
                table[frozenset([row["name"], *row["aliases"]])] = (row["torchrun"], row["reason"])
        self.assertEqual(page_rows(), table)

    def test_a_flag_called_refused_is_refused_and_the_others_are_not(self):
        values = {"N": "1", "SECONDS": "1", "PORT": "29500", "N|auto|gpu|cpu": "1", "static|c10d": "static",
                  "HOST[:PORT]": "localhost", "K=V,...": "timeout=5", "SIG,SIG": "SIGTERM", "STREAMS": "3", "RANKS": "0",
                  "METHOD": "spawn", "MODE": "node"}
        special = {"--node-rank": "0", "--event-log-handler": "null"}
        for row in json.loads(harness.lockstep("run", "--dump-flags").stdout):
            if row["torchrun"] == "ours" or row["name"] == "--help":
                continue
            flag = [row["name"]]
            if row["value"]:
                flag.append(special.get(row["name"], values.get(row["value"], "x")))
            with self.subTest(flag=flag):
                done = harness.lockstep("explain", "--json", *flag)
                refused = done.returncode == 2 and row["name"] in done.stdout + done.stderr
                self.assertEqual(refused, row["torchrun"] == "refused", done.stdout + done.stderr)


class Lines(harness.Case):
    def test_the_expected_meaning_of_every_command_line_is_that_of_torchruns_parser(self):
        lines = json.loads(LINES.read_text())
        meanings = json.loads(python("-c", PARSE, str(LINES)))
        self.assertEqual(len(meanings), len(lines))
        for line, meaning in zip(lines, meanings):
            with self.subTest(line["name"]):
                self.assertEqual(line["expect"], meaning)


if __name__ == "__main__":
    harness.unittest.main()
