"""Which build it is: version, commit, and what a source tree without git says."""

import json
import subprocess

import harness

SCRIPT = harness.ROOT / "cmake" / "version.cmake"


class Version(harness.Case):
    TIMEOUT = 30

    def test_text_json_and_run_json_name_version_and_commit(self):
        text = harness.lockstep("version")
        self.assertRegex(text.stdout, r"^lockstep \d+\.\d+\.\d+ \(commit ([0-9a-f]{7,}(-dirty)?, \d{4}-\d\d-\d\d|unknown: .+)\)\n$")
        for words in (["--version"], ["run", "--version"]):
            self.assertEqual(harness.lockstep(*words).stdout, text.stdout, words)
        told = json.loads(harness.lockstep("version", "--json").stdout)
        self.assertEqual(json.loads(harness.lockstep("--version", "--json").stdout), told)
        self.assertEqual(set(told), {"program", "version", "commit", "commit_date"})
        self.assertIn(told["version"], text.stdout)
        self.assertIn(told["commit"] or "unknown", text.stdout)
        done = harness.lockstep("run", "--name", "one", "--no-python", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        run = json.loads((self.tmp / "runs" / "one" / "run.json").read_text())
        self.assertEqual((run["version"], run["commit"]), (told["version"], told["commit"]))


class Commit(harness.Case):
    """cmake/version.cmake, on source trees of all kinds."""

    TIMEOUT = 30

    def git(self, tree, *words):
        done = subprocess.run(["git", "-C", tree, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", *words],
                              capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def tree(self, name, repository=True):
        tree = self.tmp / name
        (tree / "cmake").mkdir(parents=True)
        for file in ("cmake/commit.txt", ".gitattributes"):
            (tree / file).write_text((harness.ROOT / file).read_text())
        if repository:
            self.git(tree, "init", "-q")
            self.git(tree, "add", ".")
            self.git(tree, "commit", "-qm", "first")
        return tree

    def stamp(self, tree):
        out = self.tmp / "commit.cc"
        subprocess.run(["cmake", f"-DSOURCE={tree}", f"-DOUT={out}", "-P", SCRIPT], check=True, capture_output=True)
        return out.read_text()

    def test_each_kind_of_source_tree(self):
        ours = self.tree("ours")
        head = self.git(ours, "log", "-1", "--format=%h")
        date = self.git(ours, "log", "-1", "--format=%cs")
        self.assertIn(f'kBuildCommit[] = "{head}"', self.stamp(ours))
        self.assertIn(f'kBuildCommitDate[] = "{date}"', self.stamp(ours))
        (ours / "new").write_text("not added")
        self.assertIn(f'kBuildCommit[] = "{head}"', self.stamp(ours), "an untracked file is no change")
        # What `git archive` makes, as hosting platforms do.
        archive = self.tmp / "archive"
        archive.mkdir()
        subprocess.run(f"git -C {ours} archive HEAD | tar -x -C {archive}", shell=True, check=True)
        self.assertIn(f'kBuildCommit[] = "{head}"', self.stamp(archive))
        (ours / ".gitattributes").write_text("# changed\n")
        self.assertIn(f'kBuildCommit[] = "{head}-dirty"', self.stamp(ours))
        # Plain copies, one of them inside somebody else's repository.
        self.assertIn('kBuildCommit[] = ""', self.stamp(self.tree("copy", repository=False)))
        self.assertIn('kBuildCommit[] = ""', self.stamp(self.tree("ours/inside", repository=False)))

    def test_the_file_is_written_only_when_the_commit_changes(self):
        ours = self.tree("ours")
        self.stamp(ours)
        before = (self.tmp / "commit.cc").stat().st_mtime_ns
        self.stamp(ours)
        self.assertEqual((self.tmp / "commit.cc").stat().st_mtime_ns, before)
