"""A language model from text to text: trained on two ranks, killed and resumed, asked to write, exported; and what is refused."""

import json
import os
import re
import signal
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import jobs, netns, train  # noqa: E402

# A step takes some hundredths of a second.
TINY = {
    "recipe.width": 32, "recipe.layers": 2, "recipe.heads": 4, "recipe.kv_heads": 2, "recipe.mlp": 64,
    "train.steps": 12, "train.batch": 4, "train.threads": 1, "train.schedule.warmup": 2,
    "data.length": 32, "data.documents": 64, "data.threads": 0, "data.validation.every": 0, "data.validation.samples": 4,
    "checkpoint.every": 4, "track.samples": "true", "comm.timeout": "60s",
}


def words(name="run", sets=None, ranks=2):
    given = {**TINY, **(sets or {})}
    flags = [word for key, value in given.items() if value is not None for word in ("--set", f"{key}={value}")]
    return ["train", "lm", "--nproc-per-node", str(ranks), "--name", name, *flags]


def trained(name="run", sets=None, ranks=2):
    return harness.lockstep(*words(name, sets, ranks), env=train.ONE_THREAD, timeout=100)


class Lm(harness.Case):
    TIMEOUT = 60

    def test_text_to_tokens_to_a_model_that_writes_and_is_exported(self):
        from safetensors.numpy import load_file

        books = self.tmp / "books"
        (books / "b").mkdir(parents=True)
        for number in range(12):
            (books / "b" / f"{number}.txt").write_text(f"chapter {number}. one two three, one two three. é\n" * 12)
        packed = harness.engine("tokens", books, "--out", "books.tokens", "--json")
        self.assertEqual(packed.returncode, 0, packed.stderr)
        size = sum(file.stat().st_size for file in books.rglob("*.txt"))
        self.assertEqual({key: json.loads(packed.stdout)[key] for key in ("documents", "tokens", "vocabulary", "end")},
                         {"documents": 12, "tokens": size, "vocabulary": 257, "end": 256})
        self.assertEqual(harness.engine("tokens", "books.tokens").returncode, 0)

        done = trained("words", {"data.path": "books.tokens", "data.documents": None, "train.ema.decay": 0.5,
                                 "data.validation.fraction": 0.2, "train.recompute": "true"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        run = train.run_path("words")
        losses = [value for _, value in train.values(run, "loss")]
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(len(train.values(run, "tokens_per_second")), 12)
        loss, perplexity = train.values(run, "val/loss")[-1][1], train.values(run, "val/perplexity")[-1][1]
        self.assertAlmostEqual(perplexity, 2.718281828459045 ** loss, 6)

        def write(model, *flags):
            said = harness.engine("generate", model, "--prompt", "one two", "--tokens", 8, "--json", *flags)
            self.assertEqual(said.returncode, 0, said.stderr)
            return json.loads(said.stdout)

        greedy = write(run, "--temperature", 0)
        self.assertEqual((greedy["prompt"], greedy["step"], greedy["averaged"]), ("one two", 12, True))
        self.assertLessEqual(len(greedy["tokens"]), 8)
        self.assertEqual(write(run, "--seed", 3)["tokens"], write("words", "--seed", 3)["tokens"])
        streamed = harness.engine("generate", run, "--prompt", "one two", "--tokens", 8, "--temperature", 0)
        self.assertTrue(streamed.stdout.startswith("one two"), streamed.stdout)

        made = harness.engine("export", "--weights", run, "mine")
        self.assertEqual(made.returncode, 0, made.stderr)
        tensors = load_file(self.tmp / "mine" / "model.safetensors")
        averaged = load_file(run / "checkpoints" / "latest" / "ema.safetensors")
        self.assertEqual(sorted(tensors), sorted(averaged))
        for name, tensor in tensors.items():
            self.assertEqual(tensor.tobytes(), averaged[name].tobytes(), name)
        config = json.loads((self.tmp / "mine" / "config.json").read_text())
        self.assertEqual((config["vocab_size"], config["eos_token_id"], config["hidden_size"]), (257, 256, 32))
        self.assertEqual(write("mine", "--temperature", 0)["tokens"], greedy["tokens"])
        self.assertEqual(harness.engine("export", "--weights", run, "mine").returncode, 2)

        more = trained("more", {"recipe.model": "./mine", "data.path": "books", "data.documents": None, "train.steps": 2,
                                "train.schedule.warmup": 0, **{key: None for key in TINY if key.startswith("recipe.")}}, ranks=1)
        self.assertEqual(more.returncode, 0, more.stdout + more.stderr)
        self.assertLess(train.values(train.run_path("more"), "loss")[0][1], losses[0])

        begun = trained("begun", {"checkpoint.weights": "mine", "data.path": "books", "data.documents": None, "train.steps": 1,
                                  "train.schedule.warmup": 0}, ranks=1)
        self.assertEqual(begun.returncode, 0, begun.stdout + begun.stderr)
        self.assertEqual(train.values(train.run_path("begun"), "loss")[0], train.values(train.run_path("more"), "loss")[0])

        # Of another tokenizer it knows numbers alone.
        config.pop("lockstep_tokenizer")
        (self.tmp / "mine" / "config.json").write_text(json.dumps(config))
        refused = harness.engine("generate", "mine", "--prompt", "text")
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("--prompt-tokens", refused.stderr)
        numbers = harness.engine("generate", "mine", "--prompt-tokens", "111,110,101", "--tokens", 4)
        self.assertEqual(numbers.returncode, 0, numbers.stderr)
        self.assertRegex(numbers.stdout, r"^(\d+,){0,3}\d+\n$")

    def test_lora_is_trained_asked_merged_and_exported_alone(self):
        from safetensors.numpy import load_file

        done = trained("adapted", {"recipe.lora.rank": 2, "recipe.lora.alpha": 4, "train.zero.stage": 3, "train.zero.persistent": 32})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        run = train.run_path("adapted")
        for output, flags in ("whole", []), ("alone", ["--adapter"]):
            made = harness.engine("export", "--weights", run, output, "--json", *flags)
            self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(json.loads(made.stdout)["parameters"], 2 * 2 * (32 + 32 + 32 + 16))
        kept = load_file(run / "checkpoints" / "latest" / "model.safetensors")
        merged, alone = load_file(self.tmp / "whole" / "model.safetensors"), load_file(self.tmp / "alone" / "adapter_model.safetensors")
        self.assertEqual(set(kept) - set(merged), {name.removeprefix("base_model.model.").removesuffix(".weight") for name in alone})
        name = "model.layers.1.self_attn.v_proj"
        self.assertTrue(kept[name + ".lora_B"].any(), "nothing was learned")
        difference = merged[name + ".weight"] - kept[name + ".weight"] - 2 * kept[name + ".lora_B"] @ kept[name + ".lora_A"]
        self.assertLess(abs(difference).max(), 1e-6)
        said = [json.loads(harness.engine("generate", model, "--prompt", "count", "--tokens", 6, "--temperature", 0, "--json").stdout)
                for model in (run, "whole")]
        self.assertEqual(said[0]["tokens"], said[1]["tokens"])
        refused = harness.engine("export", "--weights", "whole", "again", "--adapter")
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("no LoRA", refused.stderr)

    def test_tokens_written_by_the_lines_of_the_documentation_are_read(self):
        page = (harness.ROOT / "docs" / "formats" / "tokens.md").read_text()
        lines = {}
        exec(re.search(r"```python\n(.*?)```", page, re.S)[1], lines)
        for vocabulary in (1000, 100000):
            lines["write_tokens"](self.tmp / "mine.tokens", [[5, 6, vocabulary - 1], [], [7] * 9], "mine", vocabulary, 3)
            read = harness.engine("tokens", "mine.tokens", "--json")
            self.assertEqual(read.returncode, 0, read.stderr)
            self.assertEqual(json.loads(read.stdout), {"documents": 3, "end": 3, "source": "mine.tokens", "tokenizer": "mine",
                                                       "tokens": 12, "vocabulary": vocabulary})

    def test_a_killed_rank_changes_nothing(self):
        sets = {"train.steps": 120, "checkpoint.every": 20}
        self.assertEqual(trained("whole", sets).returncode, 0)
        run = train.run_path("killed")
        shards = {"train.zero.stage": 3, "train.zero.persistent": 64}  # of which the bits do not tell
        job = harness.spawn_lockstep(*words("killed", {**sets, **shards}), "--max-restarts", "1", env=train.ONE_THREAD)
        harness.wait_until(lambda: train.checkpoints(run) or not job.alive(), 60, "a checkpoint")
        os.kill(train.rank_pids(run, 0)[1], signal.SIGKILL)
        self.assertEqual(job.wait(), 0, job.output)
        self.assertEqual(jobs.report(run)["restarts"], 1)
        self.assertEqual(train.differences(train.last(run), train.last(train.run_path("whole"))), [])

    def test_smoke(self):
        done = harness.lockstep("train", "lm", "--smoke=8", env=train.ONE_THREAD)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("ready", done.stdout)


class TwoHosts(harness.Case):
    TIMEOUT = 60

    def test_a_rank_killed_on_the_second_host_at_stage_3_changes_no_bit_of_ddp(self):
        harness.require("netns")
        net = netns.Net(["a", "b"])
        self.addCleanup(net.close)
        sets = {"train.steps": 120, "checkpoint.every": 20}
        shards = {"train.zero.stage": 3, "train.zero.persistent": 64}
        launchers = {}
        for number, host in enumerate("ab"):
            flags = ["--nnodes=2", f"--node-rank={number}", "--master-addr=a", "--master-port=29500", "--join-timeout=30s",
                     "--grace=2s", "--max-restarts=1"]
            command = [harness.PROGRAM, *words("hosts", {**sets, **shards}), *flags]
            launchers[host] = harness.Process(net[host].command(command), cwd=self.tmp, env=train.ONE_THREAD)
        run = train.run_path("hosts")
        harness.wait_until(lambda: train.checkpoints(run) or not launchers["a"].alive(), 60, "a checkpoint")
        engine = os.path.realpath(train.ENGINE)
        ranks = [pid for pid in net["b"].processes() if os.path.realpath(f"/proc/{pid}/exe") == engine]
        self.assertEqual(len(ranks), 2, launchers["a"].output)
        os.kill(ranks[1], signal.SIGKILL)
        for host, launcher in launchers.items():
            self.assertEqual(launcher.wait(60), 0, f"{host}: {launcher.output}")
        self.assertEqual(jobs.report(run)["restarts"], 1)
        self.assertIn("exchange: shm+tcp", launchers["a"].stdout)
        self.assertEqual(trained("whole", sets, ranks=4).returncode, 0)
        self.assertEqual(train.differences(train.last(run), train.last(train.run_path("whole"))), [])


class Refused(harness.Case):
    TIMEOUT = 60

    def test_mistakes_are_named(self):
        files = {"empty.txt": "", "short.txt": "too short", "bad.jsonl": '{"text": "a"}\nnope\n', "body.jsonl": '{"body": "a"}\n',
                 "broken/config.json": '{"model_type": "qwen2"', "wrong/config.json": '{"model_type": "gpt2"}', "fine.txt": "abc " * 400}
        for name, text in files.items():
            harness.write(name, text)
        (self.tmp / "binary.txt").write_bytes(b"PK\0\1\2")
        rows = [
            ({"data.path": "nowhere.txt"}, r"nowhere\.txt.*No such file"),
            ({"data.path": "empty.txt"}, r"'empty\.txt' is empty"),
            ({"data.path": "binary.txt"}, r"binary, not text.*binary\.txt"),
            ({"data.path": "bad.jsonl"}, r"'bad\.jsonl' line 2: expected a JSON object, found 'nope'"),
            ({"data.path": "body.jsonl"}, r"line 1: expected the field 'text', found body"),
            ({"data.path": "short.txt"}, r"the data have 10 tokens.*data\.length 32"),
            ({"data.path": "fine.txt", "data.kind": "tokens"}, r"begins with LSTOKENS"),
            ({"data.path": "fine.txt", "recipe.vocabulary": 200}, r"the data have a vocabulary of 257"),
            ({"data.path": "fine.txt", "data.kind": "generated"}, r"data\.path"),
            ({"data.kind": "text"}, r"data\.path"),
            ({"data.path": "fine.txt", "checkpoint.weights": "weights.safetensors"}, r"do not fit the model"),
            ({"recipe.model": "tini"}, r"no shape 'tini'.*did you mean 'tiny'"),
            ({"recipe.model": "./broken"}, r"config\.json.*expected a JSON object"),
            ({"recipe.model": "./wrong"}, r"gpt2"),
            ({"recipe.heads": 3}, r"heads"),
            ({"recipe.lora.rank": 4, "recipe.lora.targets": "['*.q_porj.weight']"}, r"recipe\.lora\.targets.*did you mean '\*\.q_proj\.weight'"),
            ({"recipe.lora.alpha": 4}, r"recipe\.lora\.rank is 0"),
            ({"data.length": 0}, r"data\.length"),
            ({"data.buckets": "[64, 128]"}, r"data\.buckets: has no effect here: documents are packed"),
            ({"train.batch": 0}, r"train\.batch"),
        ]
        import numpy
        from safetensors.numpy import save_file

        save_file({"model.embed_tokens.weight": numpy.zeros((5, 7), numpy.float32)}, str(self.tmp / "weights.safetensors"))
        for sets, message in rows:
            given = {**TINY, "data.documents": None if "data.path" in sets or "data.kind" in sets else 64, **sets}
            flags = [word for key, value in given.items() if value is not None for word in ("--set", f"{key}={value}")]
            done = harness.engine("train", "lm", "--name", "run", *flags)
            self.assertEqual(done.returncode, 3 if "No such file" in message else 2, f"{sets}: {done.stdout}{done.stderr}")
            self.assertRegex(re.sub(r"\s+", " ", done.stdout + done.stderr), message, sets)

    def test_what_generate_cannot_do_is_named(self):
        rows = [
            (["nowhere", "--prompt", "a"], r"nowhere"),
            ([".", "--prompt", "a"], r"expected a run, a checkpoint or a folder with config\.json"),
            ([".", "--prompt", "a", "--prompt-tokens", "1"], r"--prompt"),
            ([".", "--prompt", "a", "--top-p", "2"], r"top"),
            ([".", "--prompt", "a", "--tokens", "0"], r"--tokens"),
        ]
        for flags, message in rows:
            done = harness.engine("generate", *flags)
            self.assertEqual(done.returncode, 2, f"{flags}: {done.stdout}{done.stderr}")
            self.assertRegex(done.stderr, message, flags)
