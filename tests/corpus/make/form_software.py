"""DeepSpeed, Lightning, transformers, Megatron and other packages that are not installed here, written after the form."""

from forms import FORWARD, LOOP, OOM_TEXT, Log, keep
from register import ANY, USER, case

FORM = "after the form"
PY = "py-exception"


def ds_start(log, script="train.py"):
    log.say(f"[{log.iso()},101] [INFO] [real_accelerator.py:222:get_accelerator] Setting ds_accelerator to cuda (auto detect)",
            f"[{log.iso()},733] [INFO] [launch.py:151:main] nnodes=1, num_local_procs={log.ranks}, node_rank=0", f"[{log.iso()},790] [INFO] [comm.py:658:init_distributed] cdb=None",
            f"[{log.iso()},791] [INFO] [comm.py:689:init_distributed] Initializing TorchBackend in DeepSpeed with backend nccl")
    return log


def ds_end(log, code, rank=None, script="train.py"):
    log.wait(2)
    for r in range(log.ranks):
        log.say(f"[{log.iso()},{310 + r}] [INFO] [launch.py:319:sigkill_handler] Killing subprocess {log.pid(r)}")
    rank = log.ranks - 1 if rank is None else rank
    return log.say(f"[{log.iso()},988] [ERROR] [launch.py:325:sigkill_handler] ['/opt/conda/bin/python', '-u', '{script}', '--local_rank={rank}', '--deepspeed', 'ds.json'] exits with return code = {code}")


@case("deepspeed-loss-scale-minimum", "deepspeed", ["ds-minscale", "num-nan"], ["loss scale already at minimum"], ["yes", "no", "after-fix"], "fp16 training diverged: the loss scale fell to its minimum", rank=[0, 1, 2, 3, None], made=FORM)
def _(s):
    """Many overflows, then the exception on every rank."""
    log = ds_start(Log(80, ranks=4))
    scale = 65536
    for step in range(10, 180, 10):
        log.wait(11)
        log.say(f"[{log.iso()},{step:03d}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped={step // 9}, lr=[1e-05], mom=[(0.9, 0.999)]",
                f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {scale}, reducing to {max(1, scale // 2)}")
        scale = max(1, scale // 2)
    log.mixed(*[log.trace(r, [("train.py", 210, "<module>", "main()"), ("train.py", 181, "main", "engine.step()"), ("/opt/conda/lib/python3.10/site-packages/deepspeed/runtime/fp16/loss_scaler.py", 175, "update_scale", "raise Exception(")],
                          "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.") for r in range(4)])
    keep(s, ds_log=ds_end(log, 1))


@case("deepspeed-child-sigkill-host-memory", "deepspeed", ["exit-sigkill", "oom-kernel", "ds-exit"], ["-9", "Killed"], ANY, "rank 2 was killed with SIGKILL while the optimizer states were offloaded (likely host memory)", rank=[2, None], made=FORM)
def _(s):
    """Only the launcher's last line knows the code."""
    log = ds_start(Log(81, ranks=4))
    log.say("Loading checkpoint shards: 100%|\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588| 4/4 [00:21<00:00,  5.31s/it]", "[INFO] [utils.py:782:see_memory_usage] CPU Virtual Memory:  used = 478.02 GB, percent = 94.9%",
            "[INFO] [utils.py:782:see_memory_usage] CPU Virtual Memory:  used = 499.88 GB, percent = 99.2%")
    keep(s, ds_log=ds_end(log, -9, rank=2))


@case("deepspeed-cpu-adam-ninja", "deepspeed", ["ds-ninja"], ["ninja"], USER, "ninja is missing, so DeepSpeed cannot build its CPU optimizer", rank=[0, 1, 2, 3, None], made=FORM)
def _(s):
    """The exception, then an error of a destructor that means nothing."""
    log = ds_start(Log(82, ranks=4))
    log.mixed(*[log.trace(r, [("train.py", 95, "main", "optimizer = DeepSpeedCPUAdam(model.parameters(), lr=1e-5)"), ("/opt/conda/lib/python3.10/site-packages/deepspeed/ops/op_builder/builder.py", 527, "jit_load", "raise RuntimeError(f\"Unable to JIT load the {self.name} op due to ninja not being installed.\")")],
                          "RuntimeError: Unable to JIT load the cpu_adam op due to ninja not being installed.") + ["Exception ignored in: <function DeepSpeedCPUAdam.__del__ at 0x7f1d6c0d5b40>", "Traceback (most recent call last):",
                          '  File "/opt/conda/lib/python3.10/site-packages/deepspeed/ops/adam/cpu_adam.py", line 102, in __del__', "    self.ds_opt_adam.destroy_adam(self.opt_id)", "AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'"] for r in range(4)])
    keep(s, ds_log=ds_end(log, 1))


@case("deepspeed-hostfile-ssh", "deepspeed", ["ds-ssh", "ssh-key"], ["not reachable via ssh", "Permission denied"], USER, "DeepSpeed cannot log in to a host of its hostfile", rank=None, made=FORM)
def _(s):
    """Before anything started."""
    keep(s, ds_log="""[2026-03-14 02:11:05,101] [WARNING] [runner.py:215:fetch_hostfile] Unable to find hostfile, will proceed with training with local resources only.
[2026-03-14 02:11:05,733] [INFO] [runner.py:463:main] Using IP address of 10.0.0.11 for node worker-0
worker-1: Permission denied (publickey,password).
Traceback (most recent call last):
  File "/opt/conda/bin/deepspeed", line 6, in <module>
    main()
  File "/opt/conda/lib/python3.10/site-packages/deepspeed/launcher/runner.py", line 451, in main
    raise RuntimeError(
RuntimeError: Using hostfile at /job/hostfile but host=worker-1 was not reachable via ssh. If you are running with a single node please remove /job/hostfile or setup passwordless ssh.
""")


@case("deepspeed-zero3-size-mismatch-rank2-of-8", "deepspeed", [PY, "shape-mismatch"], ["The size of tensor a (17) must match"], USER, "the frames of a clip on rank 2 do not fit the model", rank=2, made=FORM)
def _(s):
    """Rank tags by torch; others are killed by the launcher."""
    log = ds_start(Log(83)).hf(10, 40)
    log.say(*log.trace(2, FORWARD[:3] + [("/workspace/taehv.py", 181, "forward", "loss = F.l1_loss(decoded, frames[:, 3:])")], "RuntimeError: The size of tensor a (17) must match the size of tensor b (16) at non-singleton dimension 1"))
    keep(s, ds_log=ds_end(log, 1, rank=2))


@case("lightning-misconfiguration", "lightning", [PY, "config"], ["MisconfigurationException"], USER, "the trainer is asked for an accelerator that is not there", rank=None, made=FORM)
def _(s):
    """Lightning's own exception."""
    keep(s, train_log="""Seed set to 42
/opt/conda/lib/python3.10/site-packages/lightning/fabric/connector.py:571: `precision=16` is supported for historical reasons but its usage is discouraged. Please set your precision to 16-mixed instead!
Traceback (most recent call last):
  File "/workspace/train.py", line 71, in <module>
    trainer = L.Trainer(accelerator="gpu", devices=8, strategy="ddp", max_epochs=10)
  File "/opt/conda/lib/python3.10/site-packages/lightning/pytorch/utilities/argparse.py", line 70, in insert_env_defaults
    return fn(self, **kwargs)
  File "/opt/conda/lib/python3.10/site-packages/lightning/pytorch/trainer/connectors/accelerator_connector.py", line 383, in _choose_gpu_accelerator_backend
    raise MisconfigurationException("No supported gpu backend found!")
lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!
""")


@case("lightning-ddp-cuda-oom-rank1-of-2", "lightning", ["cuda-oom"], ["CUDA out of memory"], USER, "rank 1 runs out of GPU memory in an epoch", rank=[1, None], made=FORM)
def _(s):
    """Lightning's banner, bar and table; the child process is rank 1."""
    log = Log(84, ranks=2)
    log.say("Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2", "Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2", "-" * 100, "distributed_backend=nccl", "All distributed processes registered. Starting with 2 processes", "-" * 100, "",
            "  | Name  | Type        | Params | Mode ", "---------------------------------------------", "0 | model | Transformer | 1.3 B  | train", "---------------------------------------------")
    for step in (1, 40, 80, 120):
        log.say(f"\rEpoch 0:  {step // 10}%|\u258f         | {step}/1000 [01:{step % 60:02d}<07:30,  1.95it/s, v_num=3, train_loss={3 - step / 100:.2f}]")
    log.say(*log.trace(1, [("/workspace/train.py", 80, "<module>", "trainer.fit(model, datamodule)"), ("/opt/conda/lib/python3.10/site-packages/lightning/pytorch/trainer/call.py", 47, "_call_and_handle_interrupt", "return trainer.strategy.launcher.launch(trainer_fn, *args, trainer=trainer, **kwargs)"), ("/workspace/model.py", 131, "training_step", "logits = self.model(batch)")],
            OOM_TEXT.format(want="2.25", gpu=1, free="1.01", used="78.1", alloc="74.9")), "[rank: 1] Child process with PID 41217 terminated with code 1. Forcefully terminating all other processes to avoid zombies \U0001f9df")
    keep(s, train_log=log)


@case("hf-argument-parser-unused", "torchrun", ["hf-args", "usage"], ["not used by the HfArgumentParser"], USER, "flags that the program does not know", rank=[0, 1, 2, 3], made=FORM)
def _(s):
    """HfArgumentParser's ValueError on all ranks."""
    log = Log(85, ranks=4).banner()
    log.mixed(*[log.trace(r, [("/workspace/train.py", 412, "<module>", "main()"), ("/workspace/train.py", 120, "main", "model_args, data_args, training_args = parser.parse_args_into_dataclasses()"), ("/opt/conda/lib/python3.10/site-packages/transformers/hf_argparser.py", 353, "parse_args_into_dataclasses", "raise ValueError(f\"Some specified arguments are not used by the HfArgumentParser: {remaining_args}\")")],
                          "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--group_by_modality', 'True']") for r in range(4)])
    keep(s, train_log=log.elastic(0, 1, [1, 2, 3], other_code=1))


@case("hf-tokenizer-not-loadable", "plain", [PY, "hub-conn", "tokenizer", "fs-enoent"], ["Can't load tokenizer"], USER, "the tokenizer's files are not in the model folder", rank=None, made=FORM)
def _(s):
    """transformers' OSError."""
    keep(s, train_log="""2026-03-14 02:11:05 INFO loading /data/models/qwen2.5-vl-7b
huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...
Traceback (most recent call last):
  File "/workspace/train.py", line 412, in <module>
    main()
  File "/workspace/train.py", line 166, in main
    tokenizer = AutoTokenizer.from_pretrained(args.model)
  File "/opt/conda/lib/python3.10/site-packages/transformers/models/auto/tokenization_auto.py", line 1032, in from_pretrained
    return tokenizer_class_fast.from_pretrained(pretrained_model_name_or_path, *inputs, **kwargs)
  File "/opt/conda/lib/python3.10/site-packages/transformers/tokenization_utils_base.py", line 2020, in from_pretrained
    raise EnvironmentError(
OSError: Can't load tokenizer for '/data/models/qwen2.5-vl-7b'. If you were trying to load it from 'https://huggingface.co/models', make sure you don't have a local directory with the same name. Otherwise, make sure '/data/models/qwen2.5-vl-7b' is the correct path to a directory containing all relevant files for a Qwen2TokenizerFast tokenizer.
""")


@case("hf-dataset-generation-error-rank0-of-8", "torchrun", [PY, "data-error"], ["DatasetGenerationError", "ArrowInvalid", "JSON parse error"], USER, "rank 0 meets a broken line while it converts the dataset", rank=0, made=FORM)
def _(s):
    """datasets wraps pyarrow's error; the other ranks wait in a barrier."""
    log = Log(86).banner()
    log.say("Generating train split: 211840 examples [00:04, 48211.02 examples/s]")
    log.say(*log.trace(0, [("/opt/conda/lib/python3.10/site-packages/datasets/packaged_modules/json/json.py", 153, "_generate_tables", "pa_table = paj.read_json(")], "pyarrow.lib.ArrowInvalid: JSON parse error: Missing a closing quotation mark in string. in row 5127"),
            "[rank0]: ", "[rank0]: The above exception was the direct cause of the following exception:", "[rank0]: ",
            *log.trace(0, [("/workspace/train.py", 201, "main", 'data = load_dataset("json", data_files=args.files)'), ("/opt/conda/lib/python3.10/site-packages/datasets/builder.py", 1898, "_prepare_split_single", 'raise DatasetGenerationError("An error occurred while generating the dataset") from e')], "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset"))
    log.wait(2).mixed(*[log.nccl_lost(r, "gpu-01") for r in (1, 2, 6)])
    keep(s, train_log=log.elastic(0, 1, [1, 2, 3, 4, 5, 6, 7]))


@case("megatron-nan-iterations-stop", "torchrun", ["num-nan"], ["nan", "NaN", "NAN"], ["yes", "no", "after-fix"], "the loss became NaN at iteration 1120", rank=None, made=FORM)
def _(s):
    """Megatron's lines, then its own check."""
    log = Log(87, hosts=("n-001", "n-002"), ranks=16).megatron(1000, 1160, nan_from=1120)
    log.say(*log.trace(11, [("/workspace/pretrain_gpt.py", 306, "<module>", "pretrain("), ("/workspace/megatron/training/training.py", 1410, "train", "train_step(forward_step_func,"), ("/workspace/megatron/core/rerun_state_machine.py", 551, "validate_result", "raise RuntimeError(full_message)")],
                       "RuntimeError: Rank 11, node n-002, device 3, iteration 1161: Unexpected result nan (message='found NaN in local forward loss calculation')"))
    keep(s, train_log=log.elastic(11, 1, [8, 9, 10, 12, 13, 14, 15], script="pretrain_gpt.py"))


@case("megatron-tensor-parallel-divisibility", "torchrun", [PY, "config"], ["AssertionError", "not divisible"], USER, "the number of attention heads does not fit the tensor parallel size", rank=list(range(8)), made=FORM)
def _(s):
    """The same assertion on all ranks."""
    log = Log(88).banner().say("using world size: 8, data-parallel size: 1, tensor-model-parallel size: 8, pipeline-model-parallel size: 1", "WARNING: overriding default arguments for tokenizer_type:GPT2BPETokenizer")
    log.mixed(*[log.trace(r, [("/workspace/pretrain_gpt.py", 306, "<module>", "pretrain("), ("/workspace/megatron/core/utils.py", 45, "ensure_divisibility", 'assert numerator % denominator == 0, "{} is not divisible by {}".format(numerator, denominator)')], "AssertionError: 12 is not divisible by 8") for r in range(8)])
    keep(s, train_log=log.elastic(4, 1, [0, 1, 2, 3, 5, 6, 7], other_code=1, script="pretrain_gpt.py"))


@case("openmp-two-runtimes", "plain", ["exit-sigabrt", "omp", "c-assert"], ["OMP: Error #15"], USER, "two OpenMP libraries in one process", rank=None, made=FORM)
def _(s):
    """Intel OpenMP's error and the shell's line."""
    keep(s, train_log="""loading dataset... done (51200 samples)
OMP: Error #15: Initializing libiomp5.so, but found libomp.so.5 already initialized.
OMP: Hint This means that multiple copies of the OpenMP runtime have been linked into the program. That is dangerous, since it can degrade performance or cause incorrect results. The best thing to do is to ensure that only a single OpenMP runtime is linked into the process, e.g. by avoiding static linking of the OpenMP runtime in any library. As an unsafe, unsupported, undocumented workaround you can set the environment variable KMP_DUPLICATE_LIB_OK=TRUE to allow the program to continue to execute, but that may cause crashes or silently produce incorrect results. For more information, please see http://www.intel.com/software/products/support/.
run.sh: line 14: 20817 Aborted                 (core dumped) python train.py --config base.yaml
""")


@case("s3-access-denied-rank0-of-8", "torchrun", [PY, "net", "fs-eacces"], ["AccessDenied", "403"], USER, "the credentials may not read the bucket", rank=0, made=FORM)
def _(s):
    """botocore's exception on rank 0."""
    log = Log(89).banner()
    log.say("2026-03-14 02:11:31 WARNING botocore.credentials: Found credentials in environment variables.", *log.trace(0, [("/workspace/train.py", 412, "<module>", "main()"), ("/workspace/data/s3.py", 40, "read_index", 'body = client.get_object(Bucket="vla-data", Key="index.json")["Body"].read()'), ("/opt/conda/lib/python3.10/site-packages/botocore/client.py", 1017, "_make_api_call", "raise error_class(parsed_response, operation_name)")],
            "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the GetObject operation: Access Denied"))
    log.wait(4).mixed(*[log.nccl_lost(r, "gpu-01") for r in (2, 3)])
    keep(s, train_log=log.elastic(0, 1, [1, 2, 3, 4, 5, 6, 7]))


@case("ssl-certificate-verify-2-ranks", "torchrun", ["net", PY, "hub-conn"], ["CERTIFICATE_VERIFY_FAILED"], USER, "the certificate of the server (or of a proxy) is not trusted", rank=[0, 1], made=FORM)
def _(s):
    """requests' chain of exceptions."""
    log = Log(90, ranks=2).banner()
    log.mixed(*[log.trace(r, [("/workspace/train.py", 31, "main", 'urllib.request.urlretrieve(URL, "weights.pt")'), ("/opt/conda/lib/python3.10/urllib/request.py", 1351, "do_open", "raise URLError(err)")], "urllib.error.URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain (_ssl.c:1007)>") for r in range(2)])
    keep(s, train_log=log.elastic(0, 1, [1], other_code=1))


@case("wandb-login-required-rank0-of-4", "torchrun", [PY, "wandb-net", "usage"], ["api_key not configured"], USER, "wandb has no key and no terminal to ask for one", rank=0, made=FORM)
def _(s):
    """Only rank 0 logs to wandb; the others go on until they lose it."""
    log = Log(91, ranks=4).banner()
    log.say(*log.trace(0, [("/workspace/train.py", 140, "main", 'wandb.init(project="vla")'), ("/opt/conda/lib/python3.10/site-packages/wandb/sdk/wandb_login.py", 214, "prompt_api_key", 'raise UsageError("api_key not configured (no-tty). call " + directive)')], "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])"))
    log.wait(5).mixed(*[log.nccl_lost(r, "gpu-01") for r in (1, 2, 3)])
    keep(s, train_log=log.elastic(0, 1, [1, 2, 3]))


@case("flash-attn-undefined-symbol-8-ranks", "torchrun", ["py-undef"], ["undefined symbol"], USER, "flash-attn was built for another torch", rank=list(range(8)), made=FORM)
def _(s):
    """transformers wraps the ImportError into a RuntimeError."""
    log = Log(92).banner()
    log.mixed(*[log.trace(r, [("/workspace/train.py", 9, "<module>", "from transformers import AutoModelForCausalLM"), ("/opt/conda/lib/python3.10/site-packages/transformers/utils/import_utils.py", 1780, "_get_module", "raise RuntimeError(")],
                          "RuntimeError: Failed to import transformers.models.qwen2.modeling_qwen2 because of the following error (look up to see its traceback):\n/opt/conda/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE") for r in range(8)])
    keep(s, train_log=log.elastic(3, 1, [0, 1, 2, 4, 5, 6, 7], other_code=1))


@case("triton-ptxas-compile-8-ranks", "torchrun", [PY, "triton"], ["ptxas", "PTXASError", "NoTritonConfigsError"], USER, "Triton cannot compile a kernel for this GPU", rank=list(range(8)), made=FORM)
def _(s):
    """torch.compile's chain."""
    log = Log(93).banner()
    log.mixed(*[log.trace(r, [("/workspace/train.py", 251, "main", "loss = compiled(batch)"), ("/opt/conda/lib/python3.10/site-packages/torch/_inductor/runtime/triton_heuristics.py", 480, "_precompile_config", "binary = triton.compile(*compile_args, **compile_kwargs)"), ("/opt/conda/lib/python3.10/site-packages/triton/backends/nvidia/compiler.py", 404, "make_cubin", "raise PTXASError(error)")],
                          "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : Value 'sm_103a' is not defined for option 'gpu-name'\n") for r in range(8)])
    keep(s, train_log=log.elastic(0, 1, list(range(1, 8)), other_code=1))


@case("numpy-abi-mismatch-plain", "plain", [PY, "py-import", "py-undef"], ["numpy.dtype size changed", "_ARRAY_API", "compiled using NumPy"], USER, "an extension was built against another numpy", rank=None, made=FORM)
def _(s):
    """ValueError at import."""
    keep(s, train_log="""
A module that was compiled using NumPy 1.x cannot be run in
NumPy 2.1.3 as it may crash. To support both 1.x and 2.x
versions of NumPy, modules must be compiled with NumPy 2.0.

Traceback (most recent call last):
  File "/workspace/train.py", line 6, in <module>
    import pandas as pd
  File "/opt/conda/lib/python3.10/site-packages/pandas/__init__.py", line 22, in <module>
    from pandas.compat import is_numpy_dev as _is_numpy_dev  # pyright: ignore # noqa:F401
  File "pandas/_libs/interval.pyx", line 1, in init pandas._libs.interval
ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject
""")


_ = LOOP
