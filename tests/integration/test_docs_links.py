"""Relative links of every Markdown page lead to a file of the tree, and to a heading that is there."""

import re
import subprocess
import urllib.parse

import harness

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")


def pages():
    listed = subprocess.run(["git", "-c", "safe.directory=*", "-C", harness.ROOT, "ls-files", "*.md"], capture_output=True, text=True)
    if listed.returncode == 0:
        return [harness.ROOT / name for name in listed.stdout.split()]
    return [*harness.ROOT.glob("*.md"), *harness.ROOT.glob("docs/**/*.md")]  # a tree without git


def prose(page):
    """The text without code blocks and code spans: brackets there are no links."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page):
    """Names that hosting platforms give to headings."""
    found = set()
    for heading in re.findall(r"^#+\s+(.*)$", page.read_text(), re.M):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        while name in found:
            name += "-1"
        found.add(name)
    return found


class Links(harness.Case):
    TIMEOUT = 30

    def test_relative_links_resolve(self):
        broken, seen = [], 0
        for page in pages():
            for target in LINK.findall(prose(page)):
                if re.match(r"[a-z]+:", target):
                    continue
                seen += 1
                path, _, anchor = target.partition("#")
                file = (page.parent / urllib.parse.unquote(path)).resolve() if path else page
                where = f"{page.relative_to(harness.ROOT)}: ({target})"
                if not file.exists():
                    broken.append(f"{where} leads to no file")
                elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                    broken.append(f"{where} leads to no heading of {file.name}")
        self.assertGreater(seen, 50)
        self.assertEqual(broken, [])

    def test_the_pages_a_reader_expects_are_there(self):
        for name in ("README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "SECURITY.md", "docs/contributing.md"):
            self.assertTrue((harness.ROOT / name).is_file(), name)
