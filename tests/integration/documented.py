"""Every command that the documentation shows: where it stands, and what it is.

Read are code blocks (indented or fenced) and inline code of README.md and docs/, comments of examples/*.yaml, what
examples/run prints, and the examples in the help of every program. Three sorts:

    command   could be typed as it stands, once placeholders (RUN, FILE, <name>) are filled in
    synopsis  says what may follow: [--flag VALUE], a|b, FILE ...
    mention   the name of a command in a sentence
    path      a file of the tree in a sentence
"""

import dataclasses
import re

import harness

ASSIGNMENT = r"(?:[A-Z][A-Z0-9_]*=\S* +)*"
PROGRAM = (r"(?:lockstep|lockstep-train|make|ninja|torchrun|srun|mpirun|kubectl|eval(?= \"\$\(lockstep)|pip|(?:sudo )?apt-get"
           r"|(?:\./)?(?:build/bin|\.venv/bin|examples|deps|tests|bench)/[\w./-]+|python3? (?:cmake|tests|bench)/\S+)")
COMMAND = re.compile(rf"^{ASSIGNMENT}{PROGRAM}(?:\s|$)")
CODE_LANGUAGES = {"", "sh", "bash", "shell", "console", "text"}
HELPS = ("", "run", "train", "plan", "explain", "env", "runs", "runs clean", "logs", "stop", "submit", "jobs", "cancel", "watch", "report", "tune", "lint", "selftest", "cache", "doctor",
         "doctor hardware", "doctor preflight", "doctor diagnose", "doctor hang")
ENGINE_HELPS = ("config", "eval", "reconstruct", "restore", "encode", "decode", "export", "data", "tokens", "generate")  # they load LibTorch


@dataclasses.dataclass(frozen=True)
class Shown:
    where: str  # file:line, or the help it stands in
    text: str
    sort: str

    def __str__(self):
        return f"{self.where}: {self.text}"


def unquoted(text):
    """What a shell would look into: without quoted parts."""
    return re.sub(r"'[^']*'|\"[^\"]*\"", "''", text)


def trimmed(line):
    """A line of a code block without prompt, comment, and the explanation set off by blanks."""
    line = re.sub(r"^\s*\$ ", "", line.strip())
    line = re.sub(r"\s+#(?![\w!]*[\"']).*$", "", line)
    return re.sub(r"\s{2,}(?=-)", " ", re.split(r"\s{3,}(?=[^-\s])", line)[0].strip())


def sort_of(text, inline):
    plain = unquoted(text)
    if re.search(r"\[[-\w]|\.\.\.|…|\b[A-Za-z]+\|[A-Za-z]+", plain):
        return "synopsis"
    if not inline:
        return "command"
    words = [word for word in plain.split() if not re.match(r"[A-Z][A-Z0-9_]*=", word)]
    if len(words) == 1 and "/" in words[0]:
        return "path"
    flags = [word for word in words if word.startswith("-")]
    named = [word for word in words if re.fullmatch(r"[a-z-]+", word) and word not in flags]
    if len(words) <= 3 and len(named) == len(words):
        return "mention"
    # `lockstep run --max-restarts` names a flag; what it needs beside it stays open.
    return "synopsis" if flags and len(named) + len(flags) == len(words) else "command"


def code_blocks(text):
    """(line number, line) of indented blocks (four blanks after an empty line) and of fenced shell blocks."""
    fence, shell, before = False, False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"^\s*```\s*(\w*)", line):
            fence, shell = not fence, match[1] in CODE_LANGUAGES
        elif fence and shell:
            yield number, line
        elif not fence and line.startswith("    ") and (not before.strip() or before.startswith("    ")
                                                        or before.startswith("#")):
            yield number, line
        before = line


def joined(lines):
    """Lines with their continuations: a backslash at the end, or a synopsis that goes on further to the right."""
    out = []
    for number, line in lines:
        if out and out[-1][1].endswith("\\"):
            out[-1] = (out[-1][0], out[-1][1][:-1] + line.strip())
        elif out and out[-1][0] == number - 1 and re.match(r"^\s{8,}\[", line):
            out[-1] = (out[-1][0], out[-1][1].rstrip() + " " + line.strip())
        else:
            out.append((number, line))
    return out


def of_page(text, name):
    blocks = list(code_blocks(text))
    for number, line in joined(blocks):
        if COMMAND.match(command := trimmed(line)) or "| lockstep " in command:
            yield Shown(f"{name}:{number}", command, sort_of(command, False))
    inside = {number for number, _ in blocks}
    for number, line in enumerate(text.splitlines(), 1):
        if number in inside:
            continue
        for code in re.findall(r"`([^`]+)`", line):
            code = code.replace("\\|", "|").strip()
            if COMMAND.match(code):
                yield Shown(f"{name}:{number}", code, sort_of(code, True))


def of_help(text, name):
    for line in text.splitlines():
        if COMMAND.match(command := trimmed(line)) and line.startswith("  ") and not line.startswith("   "):
            yield Shown(name, command, sort_of(command, False))
        for code in re.findall(r"`([^`]+)`", line):
            if COMMAND.match(code):
                yield Shown(name, code, sort_of(code, True))


def help_of(command):
    """What `lockstep COMMAND --help` prints."""
    done = harness.lockstep(*command.split(), "--help")
    if done.returncode != 0:
        raise AssertionError(f"lockstep {command} --help: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def collect(helps=HELPS + ENGINE_HELPS):
    """Everything that is shown, each text once."""
    found = {}

    def add(shown):
        for one in shown:
            found.setdefault((one.sort, one.text), one)

    for page in [*sorted(harness.ROOT.glob("*.md")), *sorted(harness.ROOT.glob("docs/**/*.md"))]:
        add(of_page(page.read_text(), str(page.relative_to(harness.ROOT))))
    for file in sorted(harness.ROOT.glob("examples/*.yaml")):
        lines = [re.sub(r"^#", " ", line) for line in file.read_text().splitlines() if line.startswith("#")]
        add(of_help("\n".join(re.sub(r"^ +", "  ", line) for line in lines), f"examples/{file.name}"))
    script = (harness.ROOT / "examples" / "run").read_text()
    add(of_help(script.replace("$name", "night-1").replace("$run", "runs/night-1"), "examples/run"))
    for command in helps:
        add(of_help(help_of(command), f"lockstep {command} --help".replace("  ", " ")))
    return list(found.values())
