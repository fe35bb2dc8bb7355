"""Every configuration key that the documentation or a message names exists."""

import re

import harness

SECTIONS = r"run|train|data|comm|checkpoint|track|recipe"
KEY = re.compile(rf"(?<![\w./>-])((?:{SECTIONS})(?:\.[a-z_]+)+)(?![\w/(]|\.\w)")
# Files that begin with the name of a section.
ENDINGS = ("py", "mdb", "json", "jsonl", "yaml", "yml", "md", "cc", "h", "log", "out", "sh", "sbatch", "safetensors", "txt", "pt", "tsv")


# Sections that are one line while they are unused.
WITH_FILES = [word for pair in ("data.kind=folders", "data.target=t", "data.input=i", "data.spikes.use=true", "data.spikes.path=s",
                                "data.spikes.height=1", "data.spikes.width=1", "recipe.fusion.operator=gated") for word in ("--set", pair)]


def declared():
    """Every key of every recipe, also those that are unused with its defaults: `lockstep config` prints all."""
    keys = set(SECTIONS.split("|"))
    for recipe in (("taehv",), ("denoise",), ("lm",), ("vrt",), ("vrt", *WITH_FILES)):
        done = harness.engine("config", *recipe)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        path = []
        for line in done.stdout.splitlines():
            match = re.match(r"^( *)(?:# )?([a-z_]+):", line)
            if match is None:
                continue
            path = [*path[: len(match[1]) // 2], match[2]]
            keys.add(".".join(path))
    return keys


def code_of(page):
    """Code blocks and code spans: a sentence may end in 'data.' and go on."""
    text = page.read_text()
    return "\n".join(re.findall(r"^(?: {4}|```).*$|`[^`\n]+`", text, re.M))


def literals(file):
    return "\n".join(re.findall(r'"(?:[^"\\\n]|\\.)*"', file.read_text()))


class Keys(harness.Case):
    TIMEOUT = 30

    def test_every_key_that_is_named_exists(self):
        known = declared()
        self.assertGreater(len(known), 80)
        texts = {page: code_of(page) for page in [*harness.ROOT.glob("*.md"), *harness.ROOT.glob("docs/**/*.md")]
                 if page.name != "CHANGELOG.md"}  # which names what keys were called before
        for folder in ("engine", "recipes", "cli/train"):
            texts.update({file: literals(file) for file in (harness.ROOT / "src" / folder).glob("*.cc")
                          if not file.name.startswith("kair_")})  # which names keys of option files
        texts.update({file: literals(file) for file in (harness.ROOT / "src" / "base").glob("config*.cc")})
        wrong = set()
        for file, text in texts.items():
            for key in KEY.findall(text):
                if key not in known and not key.endswith(tuple("." + e for e in ENDINGS)):
                    wrong.add(f"{file.relative_to(harness.ROOT)}: {key}")
        self.assertEqual(sorted(wrong), [])
