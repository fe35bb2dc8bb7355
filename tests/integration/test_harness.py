"""The harness itself: what it promises to notice, it notices."""

import os
import pathlib
import signal
import subprocess
import sys

import harness

RUN_ONE = pathlib.Path(__file__).with_name("run_one.py")


def run_test(body, env=None):
    """Runs one generated test in a run_one.py of its own, with a mark of its own."""
    path = harness.write("test_inner.py", "import os, subprocess, unittest\nimport harness\n"
                         "class Inner(harness.Case):\n    def test_it(self):\n        " + body + "\n")
    return harness.run([sys.executable, RUN_ONE, path, "Inner.test_it"],
                       env={"LOCKSTEP_TEST_ID": f"inner-{os.getpid()}", **(env or {})})


class RunOne(harness.Case):
    def test_passing_test_exits_0(self):
        self.assertEqual(run_test("pass").returncode, 0)

    def test_failing_test_exits_1(self):
        self.assertEqual(run_test("self.fail('as asked')").returncode, 1)

    def test_skip_that_nobody_allowed_is_a_failure(self):
        self.assertEqual(run_test("self.skipTest('not today')").returncode, 1)

    def test_missing_component_fails_and_names_the_way_out(self):
        done = run_test("harness._COMPONENTS['torch'] = (lambda: False, 'torch'); harness.require('torch')")
        self.assertEqual(done.returncode, 1)
        self.assertIn("LOCKSTEP_ALLOW_SKIP=torch", done.stderr)

    def test_missing_component_that_is_allowed_exits_77(self):
        done = run_test("harness._COMPONENTS['torch'] = (lambda: False, 'torch'); harness.require('torch')",
                        env={"LOCKSTEP_ALLOW_SKIP": "slurm, torch"})
        self.assertEqual(done.returncode, 77, done.stderr)

    def test_process_left_behind_in_a_session_of_its_own_is_a_failure_and_is_ended(self):
        done = run_test("subprocess.Popen(['sh', '-c', 'sleep 1000 & exit'], start_new_session=True).wait();"
                        " harness.SETTLE = 0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("sleep 1000", done.stderr)
        self.assertEqual(harness.leftovers(f"inner-{os.getpid()}"), {})

    def test_hanging_test_is_ended_at_its_time_limit_with_its_stack(self):
        done = run_test("subprocess.run(['sleep', '1000'])", env={"LOCKSTEP_TEST_TIMEOUT": "1"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("in test_it", done.stderr)

    def test_unknown_name_is_a_failure(self):
        path = harness.write("test_inner.py", "import harness\n")
        self.assertEqual(harness.run([sys.executable, RUN_ONE, path, "Inner.test_it"]).returncode, 1)

    def test_methods_that_run_together_have_one_entry_and_a_folder_each(self):
        path = harness.write("test_inner.py", """import harness
class Inner(harness.Case):
    TOGETHER = True
    def test_a(self):
        self.assertEqual(list(self.tmp.iterdir()), [])
        (self.tmp / "x").touch()
    test_b = test_a
    def test_c(self):
        self.test_a()
""")
        listed = harness.run([sys.executable, RUN_ONE.with_name("list_tests.py"), path])
        self.assertRegex(listed.stdout, r"\Atest_inner\|Inner\|\|\d+\|\n\Z")
        done = harness.run([sys.executable, RUN_ONE, path, "Inner"])
        self.assertEqual((done.returncode, "Ran 3 tests" in done.stderr), (0, True), done.stderr)


class Times(harness.Case):
    """What follows ctest in `make test`: cmake/test_times.py."""

    def test_the_closing_lines_and_the_exit_code_stay_those_of_ctest(self):
        said = ["1/3 Test #7: launch.Wire.Reads .......   Passed    1.50 sec", "2/3 Test #8: it.test_run.Run.test_it ..***Failed   61.00 sec",
                "3/3 Test #9: asan.launch.Wire ........   Passed   30.00 sec", "", "67% tests passed, 1 tests failed out of 3", "", "Errors"]
        (self.tmp / "said").write_text("\n".join(said) + "\n")
        script = f"set -o pipefail; (cat said; exit 8) | python3 {harness.ROOT}/cmake/test_times.py"
        done = harness.run(["bash", "-c", script])
        self.assertEqual(done.returncode, 8, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[:4] + lines[-3:], said[:4] + said[-3:])
        self.assertRegex(done.stdout, r"1\.0  integration \(1 tests\)\n +0\.5  asan\.launch \(1 tests\)\n +0\.0  launch \(1 tests\)\n +1\.5  all\n")
        self.assertRegex(done.stdout, r"61\.0  it\.test_run\.Run\.test_it\n +30\.0  asan\.launch\.Wire\n +1\.5  launch\.Wire\.Reads\n")


class Looking(harness.Case):
    def test_clean_env_drops_what_says_who_a_process_is(self):
        env = harness.clean_env({"RANK": "3"}, base={"SLURM_PROCID": "1", "WORLD_SIZE": "4", "HOME": "/h"})
        self.assertEqual(env, {"HOME": "/h", "RANK": "3", "LOCKSTEP_TEST_ID": harness.TEST_ID})

    def test_wait_for_reports_a_program_that_ended_first(self):
        with self.assertRaisesRegex(AssertionError, "ended with 3"):
            harness.spawn("sh", "-c", "echo other; exit 3").wait_for("never")

    def test_wait_for_sees_output_written_later(self):
        process = harness.spawn("sh", "-c", "read line; echo got $line", stdin=subprocess.PIPE)
        process.popen.stdin.write(b"it\n")
        process.popen.stdin.close()
        self.assertIn("got it", process.wait_for("got it"))
        self.assertEqual(process.wait(), 0)

    def test_listening_ports_and_leftovers_are_found_and_gone_after_the_end(self):
        port = harness.free_port()
        code = f"import socket,sys; s=socket.create_server(('127.0.0.1',{port})); print('up', flush=True); sys.stdin.read()"
        process = harness.spawn(sys.executable, "-c", code, stdin=subprocess.PIPE)
        process.wait_for("up")
        self.assertEqual(harness.listening_ports(process.pid), {port})
        self.assertTrue(harness.port_is_listening(port))
        self.assertIn(process.pid, harness.leftovers())
        process.send_signal(signal.SIGTERM)
        process.popen.stdin.close()
        self.assertEqual(process.wait(), -signal.SIGTERM)
        self.assertNotIn(process.pid, harness.leftovers())
        self.assertFalse(harness.port_is_listening(port))
