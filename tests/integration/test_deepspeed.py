"""Trainings with DeepSpeed's and accelerate's configurations, and what is refused: one message, and nothing starts."""

import json
import sys

import harness

sys.path.append(str(harness.ROOT / "tests"))
from beds import train  # noqa: E402

TINY = {
    "recipe.width": 32, "recipe.layers": 2, "recipe.heads": 4, "recipe.kv_heads": 2, "recipe.mlp": 64,
    "train.steps": 3, "train.batch": 8, "train.micro_batch": 2, "train.threads": 1, "train.precision": "bf16",
    "data.length": 16, "data.documents": 32, "data.threads": 0, "data.validation.fraction": 0, "checkpoint.every": 0,
}
BATCH = {key: "auto" for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")}
CLIP = {"gradient_clipping": "auto", "zero_allow_untested_optimizer": True}
FP16 = {"fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
                 "min_loss_scale": 1}}
BF16 = {"bf16": {"enabled": "auto"}}
OVERLAP = {"overlap_comm": True, "contiguous_gradients": True}
STAGE3 = {"stage": 3, "sub_group_size": 1e9, "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
          "stage3_gather_16bit_weights_on_model_save": True, **OVERLAP}
# Of the VLN recipes, written from their description.
FIVE = {
    "zero0": {**BATCH, **CLIP, **FP16, **BF16, "zero_optimization": {
        "stage": 0, "allgather_partitions": True, "allgather_bucket_size": 5e8, "reduce_scatter": True,
        "round_robin_gradients": True, "reduce_bucket_size": 5e8, **OVERLAP}},
    "zero2": {**BATCH, **FP16, **BF16, "zero_optimization": {
        "stage": 2, "sub_group_size": 1e9, "reduce_bucket_size": "auto", **OVERLAP}},
    "zero2_offload": {**BATCH, **CLIP, **BF16, "zero_optimization": {
        "stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}, "allgather_bucket_size": 5e8,
        "reduce_bucket_size": 5e8, **OVERLAP}, "activation_checkpointing": {
        "partition_activations": False, "cpu_checkpointing": False, "contiguous_memory_optimization": True,
        "synchronize_checkpoint_boundary": False}},
    "zero3": {**BATCH, **CLIP, **FP16, **BF16, "zero_optimization": {
        "reduce_bucket_size": 5e8, "stage3_prefetch_bucket_size": 5e8, "stage3_param_persistence_threshold": 1e6, **STAGE3},
        "steps_per_print": 10, "wall_clock_breakdown": False,
        "comms_logger": {"enabled": False, "verbose": False, "prof_all": False, "debug": False}},
    "zero3_first": {**BATCH, **CLIP, **FP16, **BF16, "zero_optimization": {
        "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
        **STAGE3}},
}


def words(name, *flags, sets=None):
    given = {**TINY, **(sets or {})}
    sets = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    return ["train", "lm", "--nproc-per-node", "2", "--name", name, *flags, *sets]


def trained(name, *flags, sets=None):
    return harness.lockstep(*words(name, *flags, sets=sets), env=train.ONE_THREAD, timeout=100)


class DeepSpeed(harness.Case):
    TIMEOUT = 60

    def test_the_five_configurations_train_on_two_ranks(self):
        ends = {}
        for name, config in FIVE.items():
            harness.write(f"{name}.json", json.dumps(config, indent=1))
            # One exchange for all passes of a step: the same order of additions at every stage.
            once = {"train.zero.exchange_once": "true"} if config["zero_optimization"]["stage"] >= 2 else {}
            done = trained(name, "--deepspeed", f"{name}.json", sets=once)
            self.assertEqual(done.returncode, 0, name + done.stdout + done.stderr)
            self.assertIn("train_batch_size: auto is 8: ", done.stdout)
            self.assertIn("2 samples x 2 ranks x 2 passes = 8", done.stdout)
            self.assertIn("global batch = 8: 2 samples of a rank x 2 passes x 2 ranks", done.stdout)
            ends[name] = train.values(train.run_path(name), "loss")
        self.assertEqual(len(ends["zero0"]), 3)
        # bf16 parameters at every stage, with the bits of DDP.
        self.assertEqual(len({str(losses) for losses in ends.values()}), 1, ends)

    def test_the_report_of_a_recipe(self):
        harness.write("ds.json", json.dumps(FIVE["zero3_first"]))
        sets = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
        done = harness.engine("config", "lm", "--deepspeed", "ds.json", "--ranks", "2", "--json", *sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        expected = {"stage": 3, "precision": "bf16", "micro_batch": 2, "accumulation": 2, "global_batch": 8, "ranks": 2,
                    "offload_optimizer": "none", "offload_param": "none", "refused": []}
        self.assertEqual({key: report[key] for key in expected}, expected)
        self.assertEqual({row["name"]: row["elements"] for row in report["buckets"]},
                         {"reduce_bucket_size": 1024, "stage3_prefetch_bucket_size": 921, "stage3_max_live_parameters": 10**9,
                          "stage3_param_persistence_threshold": 320, "stage3_max_reuse_distance": 10**9})
        self.assertEqual(report["config"]["train"]["zero"]["prefetch"], 921)
        self.assertEqual(report["config"]["train"]["parameters"], "bf16")
        # --set wins over the file, and what it changes is reported as it is in force.
        again = harness.engine("config", "lm", "--deepspeed", "ds.json", "--ranks", "2", "--json", *sets,
                               "--set", "train.zero.stage=2")
        self.assertEqual(json.loads(again.stdout)["stage"], 2, again.stderr)

    def test_what_is_refused_starts_nothing(self):
        config = harness.write("mine.yaml", "train: {zero: {stage: 1}}\n")
        files = {
            "both.json": ('{"fp16": {"enabled": true},\n "bf16": {"enabled": true}}', "both.json:2: bf16.enabled = true"),
            "batch.json": ('{"train_batch_size": 9,\n "train_micro_batch_size_per_gpu": 2}', "batch.json:1: train_batch_size = 9"),
            "stage.json": ('{"zero_optimization": {"stage": 1,\n "stage3_max_live_parameters": 1}}', "stage.json:2: zero_opt"),
            "offload.json": ('{"zero_optimization": {"stage": 2,\n "offload_param": {"device": "cpu"}}}', "offload.json:2: "),
            "nvme.json": ('{"zero_optimization": {"stage": 3,\n "offload_optimizer": {"device": "nvme"}}}', "use cpu"),
            "minus.json": ('{"zero_optimization": {\n"reduce_bucket_size": -1}}', "minus.json:2:1: "),
            "part.json": ('{"zero_optimization": {\n"reduce_bucket_size": 1.5}}', "part.json:2:1: "),
            "cut.json": ('{"zero_optimization": {\n "stage": 2', "cut.json:2:12: the file ends here"),
            "empty.json": ("", "empty.json:1:1: the file is empty"),
            "typo.json": ('{"zero_optimisation": {}}', "did you mean 'zero_optimization'?"),
            "anchor.yaml": ("distributed_type: DEEPSPEED\ndeepspeed_config: &a\n  zero_stage: 2\n", "anchor.yaml:2:19: YAML"),
        }
        for name, (text, message) in files.items():
            harness.write(name, text)
            flag = "--accelerate" if name.endswith("yaml") else "--deepspeed"
            done = harness.engine("config", "lm", flag, name, "--ranks", "2")
            self.assertEqual(done.returncode, 2, name + done.stdout + done.stderr)
            self.assertEqual(done.stderr.count("lockstep config: "), 1, done.stderr)
            self.assertIn(message, done.stderr)
        folder = harness.engine("config", "--deepspeed", ".")
        self.assertNotEqual(folder.returncode, 0)
        self.assertEqual(folder.stderr.count("lockstep config: "), 1, folder.stderr)
        harness.write("two.json", '{"zero_optimization": {"stage": 2}}')
        disagree = harness.engine("config", "lm", "--config", config, "--deepspeed", "two.json")
        self.assertEqual(disagree.returncode, 2, disagree.stdout)
        self.assertRegex(disagree.stderr, r"mine\.yaml:1:\d+: train\.zero\.stage is 1, and two\.json:1:\d+ says 2")
        # Two ranks: one message, and no run.
        done = trained("refused", "--deepspeed", "both.json")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual((done.stdout + done.stderr).count("both.json:2: bf16.enabled = true"), 1, done.stdout + done.stderr)
        self.assertEqual(train.checkpoints(train.run_path("refused")), {})
