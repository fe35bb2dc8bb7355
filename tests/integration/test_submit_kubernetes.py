"""`lockstep submit`, `jobs`, `logs` and `cancel` through the real kubectl, which speaks to an API server of the tests."""

import json
import pathlib
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import api_server  # noqa: E402

PLURALS = {"kubernetes": ("batch", "jobs"), "pytorchjob": ("kubeflow.org", "pytorchjobs"), "trainjob": ("trainer.kubeflow.org", "trainjobs"),
           "volcano": ("batch.volcano.sh", "jobs")}


class Kubernetes(harness.Case):
    TIMEOUT = 60

    def setUp(self):
        harness.require("kubectl")
        self.api = api_server.ApiServer(str(self.tmp))
        self.addCleanup(self.api.close)
        self.env = {"KUBECONFIG": self.api.config, "XDG_STATE_HOME": self.tmp / "state", "HOME": self.tmp}

    def lockstep(self, *args, code=0):
        done = harness.lockstep(*args, env=self.env)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def submit(self, platform, *args, code=0):
        return self.lockstep("submit", "--platform", platform, "--image", "registry/train:1", "--gpus", "8", "--nnodes", "2", "--name", "night",
                             "--namespace", "team", *args, "train.py", code=code)

    def state(self):
        return next(one for one in json.loads(self.lockstep("jobs", "--json").stdout)["jobs"] if one["name"] == "night")

    def test_a_job_from_submission_to_its_end(self):
        group, plural = PLURALS["kubernetes"]
        self.assertIn("nothing wrong found", self.submit("kubernetes", "--check").stdout)
        self.assertEqual(self.api.objects, {}, "a check creates nothing")
        self.submit("kubernetes")
        self.assertEqual(sorted(self.api.objects), [("", "secrets", "team", "night-token"), ("", "services", "team", "night"), (group, plural, "team", "night")])
        self.assertEqual(self.state()["state"], "pending")
        job = self.api.objects[group, plural, "team", "night"]
        job["status"] = {"active": 2, "startTime": "2026-01-01T00:00:00Z"}
        self.assertEqual((self.state()["state"], self.state()["nodes"], self.state()["where"]), ("running", 2, "team"))
        for i in range(2):
            name = f"night-{i}-abcde"
            self.api.objects["", "pods", "team", name] = {
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team", "labels": job["spec"]["template"]["metadata"]["labels"]},
                "spec": job["spec"]["template"]["spec"], "status": {"phase": "Running"}}
            self.api.logs[name] = f"step {i}\n"
        text = self.lockstep("logs", "night").stdout
        self.assertRegex(text, r"\[pod/night-0-abcde/pytorch\] step 0\n")
        self.assertRegex(text, r"\[pod/night-1-abcde/pytorch\] step 1\n")
        job["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}]}
        self.assertIn("job 'night' has ended: failed, PodFailurePolicy", self.lockstep("logs", "-f", "night", "-n", "1").stderr)
        self.assertTrue(any("/log?" in call and "follow=true" in call and "tailLines=1" in call for call in self.api.calls), self.api.calls)
        self.assertEqual((self.state()["state"], self.state()["detail"]), ("failed", "PodFailurePolicy"))
        done = self.submit("kubernetes", code=3)
        self.assertRegex(done.stderr, "already exists.*\n(.*\n)*  do: lockstep cancel deletes the job of that name")
        self.lockstep("cancel", "night")
        self.assertEqual([key for key in self.api.objects if key[1] != "pods"], [])
        self.assertEqual(self.state()["state"], "ended")

    def test_cancel_deletes_its_own_objects_only_and_says_when_there_are_none(self):
        others = {("", "services", "team", "night"): "Service", ("", "secrets", "team", "night-token"): "Secret"}
        for key, kind in others.items():
            self.api.objects[key] = {"apiVersion": "v1", "kind": kind, "metadata": {"name": key[3], "namespace": "team"}, "status": {}}
        done = self.lockstep("cancel", "--platform", "pytorchjob", "night", code=2)
        self.assertRegex(done.stderr, "the cluster has no job 'night' of Lockstep")
        self.assertEqual(sorted(self.api.objects), sorted(others))

    def test_jobs_of_one_name_in_two_namespaces(self):
        for space in ("team", "other"):
            self.submit("kubernetes", "--namespace", space)
        found = json.loads(self.lockstep("jobs", "--json").stdout)["jobs"]
        self.assertEqual(sorted((one["name"], one["where"]) for one in found), [("night", "other"), ("night", "team")])
        self.assertIn("in namespace none", self.lockstep("cancel", "--namespace", "none", "night", code=2).stderr)
        self.assertIn("has none", self.lockstep("cancel", "--platform", "slurm", "--namespace", "team", "night", code=2).stderr)
        self.lockstep("cancel", "--namespace", "team", "night")
        self.assertEqual({key[2] for key in self.api.objects}, {"other"})
        self.env["XDG_STATE_HOME"] = self.tmp / "elsewhere"  # where nobody submitted it
        self.lockstep("logs", "--platform", "kubernetes", "--namespace", "other", "night")
        self.assertIn("/api/v1/namespaces/other/pods", self.api.calls[-1])

    def test_namespace_is_that_of_the_submission_also_when_the_default_has_changed(self):
        self.lockstep("submit", "--platform", "kubernetes", "--image", "registry/train:1", "--name", "night", "train.py")
        job = self.api.objects[(*PLURALS["kubernetes"], "default", "night")]
        job["status"] = {"active": 1}
        config = json.loads(pathlib.Path(self.api.config).read_text())
        config["contexts"][0]["context"]["namespace"] = "other"
        pathlib.Path(self.api.config).write_text(json.dumps(config))
        self.assertEqual((self.state()["state"], self.state()["where"]), ("running", "default"))
        self.lockstep("cancel", "night")
        self.assertEqual(self.api.objects, {})

    def test_a_job_that_cannot_be_noted(self):
        (self.tmp / "state").touch()  # no folder: known before anything is created
        self.assertRegex(self.submit("kubernetes", code=3).stderr, f"{self.tmp}/state")
        self.assertEqual(self.api.objects, {})
        (self.tmp / "state").unlink()
        (self.tmp / "state" / "lockstep" / "jobs" / "night-kubernetes-bed.team.night.json").mkdir(parents=True)
        done = self.submit("kubernetes", code=3)
        self.assertRegex(done.stderr, "night was submitted, and cannot be noted: .*\n.*lockstep cancel --platform kubernetes --namespace team night ends it")
        self.lockstep("cancel", "--platform", "kubernetes", "--namespace", "team", "night")
        self.assertEqual(self.api.objects, {})

    def pods(self, attempt, status):
        """Both pods of the job in this attempt; those of the attempts before stay."""
        job = self.api.objects[(*PLURALS["kubernetes"], "team", "night")]
        for i in range(2):
            name = f"night-{i}-{attempt}"
            self.api.objects["", "pods", "team", name] = {
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team", "labels": job["spec"]["template"]["metadata"]["labels"]},
                "spec": job["spec"]["template"]["spec"], "status": status}
            self.api.logs.setdefault(name, f"step {i} of {attempt}\n")

    def test_follow_waits_for_the_pods(self):
        self.submit("kubernetes")
        job = self.api.objects[(*PLURALS["kubernetes"], "team", "night")]
        follow = harness.spawn_lockstep("logs", "-f", "night", env=self.env)
        follow.wait_for("waiting for the pods of job 'night'")
        job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
        self.pods("abcde", {"phase": "Succeeded"})
        self.assertEqual(follow.wait(), 0, follow.output)
        self.assertIn("[pod/night-1-abcde/pytorch] step 1 of abcde\n", follow.output)
        self.assertIn("job 'night' has ended: succeeded", follow.output)
        for key in [key for key in self.api.objects if key[1] == "pods"]:
            del self.api.objects[key]
        job["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}
        self.assertIn("job 'night' has ended: failed, DeadlineExceeded", self.lockstep("logs", "-f", "night").stderr)

    def test_follow_goes_on_when_the_pods_are_started_again(self):
        """The pods saved their state and ended with 75. kubectl ends with them; the job does not."""
        self.submit("kubernetes")
        job = self.api.objects[(*PLURALS["kubernetes"], "team", "night")]
        end = {"state": {"terminated": {"exitCode": 75, "finishedAt": "2026-01-01T00:00:07Z"}}}
        self.pods("first", {"phase": "Failed", "containerStatuses": [end]})
        job["status"] = {"active": 2}
        follow = harness.spawn_lockstep("logs", "-f", "night", env=self.env)
        follow.wait_for("step 1 of first")
        self.api.logs["night-1-second"] = None
        self.pods("second", {"phase": "Running"})
        follow.wait_for("not found")
        self.api.logs["night-1-second"] = "step 1 of second\n"
        follow.wait_for("step 1 of second")
        job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
        self.assertEqual(follow.wait(), 0, follow.output)
        self.assertIn("job 'night' has ended: succeeded", follow.output)
        logs = [call for call in self.api.calls if "night-0-first/log?" in call]
        self.assertNotIn("sinceTime", logs[0])
        self.assertTrue(len(logs) > 1 and all("sinceTime=2026-01-01T00%3A00%3A07Z" in call for call in logs[1:]), logs)

    def test_job_is_looked_for_in_the_cluster_it_was_submitted_to(self):
        self.submit("kubernetes")
        (self.tmp / "other").mkdir()
        other = api_server.ApiServer(str(self.tmp / "other"))
        self.addCleanup(other.close)
        config = json.loads(pathlib.Path(self.api.config).read_text())
        theirs = json.loads(pathlib.Path(other.config).read_text())
        config["clusters"].append({**theirs["clusters"][0], "name": "theirs"})
        config["contexts"].append({"name": "theirs", "context": {"cluster": "theirs", "user": "me", "namespace": "default"}})
        config["current-context"] = "theirs"
        pathlib.Path(self.api.config).write_text(json.dumps(config))
        self.submit("kubernetes", "--name", "day")  # here, of another name
        job = next(key for key in other.objects if key[1] == "jobs")
        other.objects[(*job[:3], "night")] = json.loads(json.dumps(other.objects[job]).replace('"day', '"night'))
        found = json.loads(self.lockstep("jobs", "--json").stdout)["jobs"]
        self.assertEqual(sorted(one["name"] for one in found), ["day", "night", "night"], "theirs, too, and ours under its own cluster")
        self.lockstep("cancel", "night")
        self.assertEqual(self.api.objects, {})
        self.assertIn((*job[:3], "night"), other.objects)

    def test_jobs_of_operators(self):
        for platform in ("pytorchjob", "trainjob", "volcano"):
            self.submit(platform)
            self.assertIn((*PLURALS[platform], "team", "night"), self.api.objects)
            self.lockstep("cancel", "--platform", platform, "night")
            self.assertEqual(self.api.objects, {})

    def test_no_cluster_is_an_error_in_kubectls_words_and_nothing_is_kept(self):
        self.api.close()
        done = self.submit("kubernetes", code=3)
        self.assertRegex(done.stderr, r"kubectl ended with exit code 1\n.*127\.0\.0\.1")
        self.assertFalse((self.tmp / "state").exists())
