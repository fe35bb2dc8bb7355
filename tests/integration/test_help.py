"""`--help` of every command: one form, lines that fit, the field's words, and the same text from `lockstep help`."""

import re

import harness


def commands():
    """Every command that `lockstep --help` lists, and those of `doctor`."""
    listed = re.findall(r"^  ([a-z]+) {2,}\S", harness.lockstep("--help").stdout.split("examples:")[0], re.M)
    doctor = re.findall(r"^  ([a-z]+) {2,}\S", harness.lockstep("doctor", "--help").stdout.split("examples:")[0], re.M)
    return [[name] for name in listed] + [["doctor", name] for name in doctor]


class Help(harness.Case):
    TIMEOUT = 60

    def test_every_command_describes_itself_in_the_same_form(self):
        names = commands()
        self.assertGreater(len(names), 20)
        for words in names:
            with self.subTest(command=" ".join(words)):
                done = harness.lockstep(*words, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(done.stdout.startswith(f"usage: lockstep {' '.join(words)} "), done.stdout[:200])
                self.assertRegex(done.stdout, r"\n\nexamples:\n  \S")
                self.assertLessEqual(max(map(len, done.stdout.splitlines())), 120)
                self.assertTrue(done.stdout.endswith("\n") and not done.stdout.endswith("\n\n"))
                self.assertEqual(harness.lockstep("help", *words).stdout, done.stdout)

    def test_examples_begin_with_their_command(self):
        for words in commands():
            text = harness.lockstep(*words, "--help").stdout
            lines = re.findall(r"^  (.+)$", text[text.index("\nexamples:\n"):].split("\n\n")[0], re.M)
            self.assertIn("lockstep " + words[0], lines[0])
            for line in lines:
                self.assertIn("lockstep ", line)

    def test_help_without_a_command_is_the_list_and_a_wrong_one_is_refused(self):
        self.assertEqual(harness.lockstep("help").stdout, harness.lockstep("--help").stdout)
        done = harness.lockstep("help", "wach")
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you mean 'watch'", done.stderr)
