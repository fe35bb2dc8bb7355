"""Finished runs whose logs hold words that look like errors. Nothing failed in any of them."""

from forms import Log, dmesg, keep
from program import program
from register import healthy, lockstep, log_folder, plain, torchrun
from stage import LOCKSTEP, PYTHON

FORM = "after the form"


@healthy("ddp-4-ranks-torchrun", "torchrun", "four ranks train and finish")
def _(s):
    """No hook at all."""
    s.write("train.py", program())
    torchrun(s, 4)


@healthy("ddp-2-ranks-lockstep", "lockstep", "two ranks train and finish")
def _(s):
    """No hook at all."""
    s.write("train.py", program())
    lockstep(s, 2)


@healthy("ddp-4-tasks-srun", "srun", "four tasks on two nodes train and finish", bed="slurm")
def _(s, bed):
    """srun without labels."""
    import real_slurm
    s.write("train.py", program(args=real_slurm.FROM_SLURM))
    bed.run(s, f"srun -N2 --ntasks-per-node=2 {PYTHON} train.py >log/srun.log 2>&1")


@healthy("download-retries-recovered", "lockstep", "downloads fail twice with tracebacks in the log and then succeed")
def _(s):
    """logger.exception in a retry loop."""
    s.write("train.py", program(imports="""
def fetch(part, attempt):
    if attempt < 2:
        raise ConnectionError(f"HTTPSConnectionPool(host='data.example.org', port=443): Max retries exceeded with url: /{part} (Caused by NewConnectionError: [Errno 111] Connection refused)")
    return [part] * 8


def fetch_with_retries(part):
    for attempt in range(5):
        try:
            return fetch(part, attempt)
        except ConnectionError:
            logging.getLogger("fetch").exception("attempt %d/5 failed, retrying in 0.1 s", attempt + 1)
            time.sleep(0.1)
""", start="shard = fetch_with_retries(f'shard-{rank:04d}')"))
    lockstep(s, 2)


@healthy("caught-traceback-logged-then-continues", "torchrun", "single samples fail with a printed traceback, are skipped, and the run finishes")
def _(s):
    """traceback.print_exc on both ranks, again and again."""
    s.write("train.py", program(imports="import traceback", batch="""
        try:
            if global_step % 5 == 2:
                raise ValueError(f"sample {global_step * 31 + rank}: corrupt JPEG data: 12 extraneous bytes before marker 0xd9")
        except ValueError:
            traceback.print_exc()
            logger.error("skipping a broken sample, %d skipped so far", global_step // 5 + 1)
        """))
    torchrun(s, 2)


@healthy("metrics-named-error-and-failure", "lockstep", "metrics are called error, failure rate, abort ratio and killed neurons")
def _(s):
    """Words of disaster as names of metrics."""
    s.write("train.py", program(epoch="""
    if rank == 0:
        print(f"epoch {epoch}: word error rate 0.1412, error: 0.0831, failure rate 0.02, fatal errors 0, killed neurons 12, abort ratio 0.0, nan ratio 0.0")
        print(json.dumps({"val/error": 0.0831, "val/top5_error": 0.012, "exceptions": 0, "segfaults": 0, "oom_events": 0}))
        logger.info("Errors: 0, Failures: 0, Timeouts: 0")
    """))
    lockstep(s, 2)


@healthy("nccl-info-connect-retries-8-ranks", "torchrun", "NCCL needed several attempts to connect, then everything worked", made=FORM)
def _(s):
    """INFO lines about refused connections, plug-ins that are not there, sockets instead of InfiniBand."""
    log = Log(120).banner()
    for attempt in range(1, 4):
        for r in (1, 4, 6):
            log.say(log.nccl(r, f"NCCL INFO socketPollConnect: connect to 10.12.1.20<52333> returned Connection refused, retrying ({attempt}/34) after sleep for {attempt * 100} msec"))
    log.nccl_start(net="Socket").hf(10, 200, total=200)
    keep(s, train_log=log.say("{'train_runtime': 412.3312, 'train_samples_per_second': 77.2, 'train_steps_per_second': 0.48, 'train_loss': 2.31, 'epoch': 1.0}", "100%|\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588| 200/200 [06:52<00:00,  2.06s/it]"))


@healthy("destroy-process-group-warning-8-ranks", "torchrun", "the program forgot destroy_process_group; torch warns at the end", made=FORM)
def _(s):
    """Eight warnings with the words leak and abort."""
    log = Log(121).banner().hf(10, 100, total=100)
    log.say("{'train_runtime': 212.3, 'train_loss': 2.2, 'epoch': 1.0}")
    for r in range(8):
        log.say(f"[rank{r}]:[W{log.glog()} ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources. For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())")
    log.say(f"[rank3]:[W{log.glog()} TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=81, addr=[localhost]:41122, remote=[localhost]:29500): failed to recv, got 0 bytes",
            f"[rank3]:[W{log.glog()} ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0(default_pg) Rank 3] Failed to check the \"should dump\" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: failed to recv, got 0 bytes")
    keep(s, train_log=log)


@healthy("hf-trainer-deprecations-8-ranks", "torchrun", "many warnings of transformers, eight times each", made=FORM)
def _(s):
    """Warnings interleaved, missing weights that are expected, allocator advice."""
    log = Log(122).banner()
    log.mixed(*[["/opt/conda/lib/python3.10/site-packages/transformers/training_args.py:1568: FutureWarning: `evaluation_strategy` is deprecated and will be removed in version 4.46 of Transformers. Use `eval_strategy` instead", "  warnings.warn(",
                 "Some weights of Qwen2_5_VLForConditionalGeneration were not initialized from the model checkpoint at /data/qwen and are newly initialized: ['merger.ln_q.weight']", "You should probably TRAIN this model on a down-stream task to be able to use it for predictions and inference.",
                 "/opt/conda/lib/python3.10/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of the inputs have requires_grad=True. Gradients will be None", "Using a slow image processor as `use_fast` is unset and a slow processor was saved with this model."] for _ in range(8)])
    log.say("Gradient accumulation steps mismatch: GradientAccumulationPlugin has 1, DeepSpeed config has 8. Using DeepSpeed's value.").hf(10, 120, total=120)
    log.say(f"[{log.iso()},101] [WARNING] [stage3.py:2139:step] 2 pytorch allocator cache flushes since last step. this happens when there is high memory pressure and is detrimental to performance.")
    log.say("{'eval_loss': 2.01, 'eval_runtime': 3.1, 'epoch': 1.0}", "{'train_runtime': 991.0, 'train_samples_per_second': 12.9, 'train_loss': 2.11, 'epoch': 1.0}", "***** train metrics *****", "  total_flos               =  1038291GF", "  train_loss               =     2.11")
    keep(s, train_log=log)


@healthy("wandb-offline-network-errors", "plain", "wandb cannot reach its server; training is not touched", made=FORM)
def _(s):
    """wandb's own ERROR lines."""
    log = Log(123, ranks=1)
    log.say("wandb: Network error (ConnectionError), entering retry loop.", "wandb: W&B API key is configured. Use `wandb login --relogin` to force relogin", "wandb: ERROR Error while calling W&B API: context deadline exceeded (<Response [500]>)", "wandb: Tracking run with wandb version 0.18.3").hf(10, 80, total=80)
    log.say("wandb: WARNING Fatal error while uploading data. Some run data will not be synced, but it will still be written to disk. Use `wandb sync` at the end of the run to try uploading.", "wandb: Run history:", "wandb:       train/loss \u2588\u2586\u2585\u2583\u2582\u2581", "wandb: You can sync this run to the cloud by running:", "wandb: wandb sync /home/user/train/wandb/offline-run-20260314",
            "Training completed. Model saved to out/final", "exit code 0")
    keep(s, train_log=log)


@healthy("tokenizers-parallelism-fork-warnings", "torchrun", "tokenizers warns about forks and deadlocks", made=FORM)
def _(s):
    """The word deadlocks, many times."""
    log = Log(124, ranks=2).banner()
    for _ in range(6):
        log.say("huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...", "To disable this warning, you can either:", "\t- Avoid using `tokenizers` before the fork if possible", "\t- Explicitly set the environment variable TOKENIZERS_PARALLELISM=(true | false)")
    log.hf(10, 100, total=100).say("{'train_runtime': 101.0, 'train_samples_per_second': 12.9, 'train_loss': 2.11, 'epoch': 1.0}", "INFO:__main__:training finished, model in out/")
    keep(s, train_log=log)


@healthy("validation-table-of-failure-cases", "lockstep", "the evaluation prints a table of failure cases")
def _(s):
    """A success rate of 0.62 is no crash."""
    s.write("train.py", program(end='''
    if rank == 0:
        print("Failure cases:")
        print("  task 3 FAILED  (collision, robot aborted after 41 steps)")
        print("  task 7 FAILED  (timed out after 300 steps)")
        print("  task 9 ERROR   (object lost)")
        print("success rate 0.62 (31/50), 19 failures")
    '''))
    lockstep(s, 2)


@healthy("helper-thread-exception-run-finishes", "torchrun", "a thread that only uploads statistics dies of an exception; training goes on and finishes")
def _(s):
    """threading's own report of the exception."""
    s.write("train.py", program(imports="import threading", start='''
    def upload():
        raise TimeoutError("statistics server did not answer within 2 s")
    if rank == 0:
        threading.Thread(target=upload, name="stats").start()
    '''))
    torchrun(s, 2)


@healthy("loss-scale-overflow-skips-deepspeed", "deepspeed", "some fp16 steps overflow and are skipped, as usual", made=FORM)
def _(s):
    """OVERFLOW! lines at the start."""
    import form_software
    log = form_software.ds_start(Log(125, ranks=4))
    scale = 65536
    for step in range(1, 8):
        log.say(f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {scale}, reducing to {scale // 2}")
        scale //= 2
    for step in range(10, 200, 10):
        log.wait(11)
        log.say(f"[{log.iso()},{step:03d}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=7, lr=[1e-05], mom=[(0.9, 0.999)]", f"steps: {step} loss: {8 / (1 + step / 50):.4f} iter time (s): 1.101 samples/sec: 116.1")
    for r in range(4):
        log.say(f"[{log.iso()},{700 + r}] [INFO] [launch.py:351:main] Process {log.pid(r)} exits successfully.")
    keep(s, ds_log=log)


@healthy("memory-error-caught-batch-halved", "lockstep", "an allocation fails, is caught, and the batch is halved")
def _(s):
    """A real failed allocation with its message in the log."""
    s.write("train.py", program(start='''
    batch = 1 << 42
    while True:
        try:
            probe = torch.empty(batch, dtype=torch.float64)
            break
        except RuntimeError as error:
            logger.warning("out of memory with batch %d (%s), trying half of it", batch, str(error)[:120])
            batch //= 1 << 12
    del probe
    '''))
    lockstep(s, 2)


@healthy("restart-then-success-2-ranks-lockstep", "lockstep", "the first attempt fails, the second finishes")
def _(s):
    """--max-restarts 1."""
    s.write("train.py", program(start='''
    if rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise OSError(5, "Input/output error", "/mnt/data/shard-0001")
    '''))
    lockstep(s, 2, flags=["--max-restarts", "1", "--backoff", "100ms"])


@healthy("restart-then-success-2-ranks-torchrun", "torchrun", "the first attempt fails, torchrun restarts it, the second finishes")
def _(s):
    """--max-restarts 1; both attempts in one file."""
    s.write("train.py", program(start='''
    if rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise OSError(5, "Input/output error", "/mnt/data/shard-0001")
    '''))
    torchrun(s, 2, flags=["--standalone", "--max-restarts", "1"])


@healthy("kernel-log-with-harmless-lines", "torchrun", "a finished run and a kernel log with the usual complaints", made=FORM)
def _(s):
    """apparmor, corrected memory errors, perf, a remapped row note of long ago."""
    keep(s, train_log=Log(126).banner().hf(10, 90, total=90).say("{'train_runtime': 301.0, 'train_loss': 2.11, 'epoch': 1.0}", "100%|\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588| 90/90 [02:52<00:00,  1.91s/it]"),
         dmesg_txt=dmesg(["ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0], AE_NOT_FOUND (20210730/dswload2-162)", "audit: type=1400 audit(1773454210.101:88): apparmor=\"DENIED\" operation=\"open\" profile=\"snap.lxd\" name=\"/proc/1/cgroup\" pid=2211",
         "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)", "perf: interrupt took too long (2504 > 2500), lowering kernel.perf_event_max_sample_rate to 79750", "systemd[1]: nvidia-persistenced.service: Failed with result 'exit-code' (restarted)", "usb 1-2: device descriptor read/64, error -110"], start=811.2))


@healthy("corrupt-checkpoint-skipped-older-one-loaded", "torchrun", "the newest checkpoint is damaged; the program says so and takes the one before")
def _(s):
    """A real failure of torch.load that is caught."""
    s.write("train.py", program(resume='''
    for name in ("new.pt", "old.pt"):
        path = f"{name}.{rank}"
        torch.save({"model": model.module.state_dict()}, path)
        if name == "new.pt":
            os.truncate(path, os.path.getsize(path) // 2)
        try:
            model.module.load_state_dict(torch.load(path)["model"])
            logger.info("resumed from %s", path)
            break
        except Exception as error:
            logger.warning("checkpoint %s is damaged (%s: %s), trying an older one", path, type(error).__name__, error)
    '''))
    torchrun(s, 2)


@healthy("nan-gradient-steps-skipped", "lockstep", "two steps have NaN gradients and are skipped, as mixed precision does")
def _(s):
    """The words nan and inf in a finished run."""
    s.write("train.py", program(backward='''
        if global_step in (3, 4):
            logger.warning("step %d: gradient norm is nan, step skipped, loss scale 65536 -> 32768", global_step)
            for parameter in model.parameters():
                parameter.grad.zero_()
        '''))
    lockstep(s, 2)


@healthy("generated-text-quotes-errors", "torchrun", "the language model under training writes error messages; they are its text")
def _(s):
    """Samples of generated text in the log."""
    s.write("train.py", program(epoch='''
    if rank == 0:
        print("=== sample 1 (temperature 0.8) ===")
        print("Q: my job says 'RuntimeError: CUDA out of memory', what can I do?")
        print("A: Lower the batch size. If the log shows 'Segmentation fault (core dumped)' instead, look at the driver.")
        print("=== sample 2 ===")
        print("ERROR 404: the page was not found. Please try again.")
        print("=== end of samples ===")
    '''))
    torchrun(s, 2)


@healthy("lightning-fit-with-warnings", "lightning", "Lightning's warnings and its last line", made=FORM)
def _(s):
    """max_epochs reached."""
    keep(s, train_log="""Seed set to 42
GPU available: True (cuda), used: True
/opt/conda/lib/python3.10/site-packages/lightning/pytorch/trainer/connectors/data_connector.py:424: The 'val_dataloader' does not have many workers which may be a bottleneck. Consider increasing the value of the `num_workers` argument` to `num_workers=95` in the `DataLoader` to improve performance.
[rank: 0] Received SIGTERM handler: none installed
Epoch 0: 100%|##########| 100/100 [01:21<00:00,  1.22it/s, v_num=3, train_loss=0.512]
Epoch 1: 100%|##########| 100/100 [01:20<00:00,  1.24it/s, v_num=3, train_loss=0.311]
Metric val_error improved by 0.031 >= min_delta = 0.0. New best score: 0.118
`Trainer.fit` stopped: `max_epochs=2` reached.
""")


@healthy("accelerate-2-processes", "accelerate", "accelerate on two CPU processes finishes")
def _(s):
    """Accelerator() in the program."""
    s.write("train.py", '''import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model, optimizer = torch.nn.Linear(8, 2), None
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(8):
    loss = model(torch.randn(4, 8)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.print(f"step {step} loss {loss.item():.4f}")
accelerator.wait_for_everyone()
accelerator.print("done, 0 errors")
accelerator.end_training()
''')
    log_folder(s)
    s.run(f"{PYTHON} -m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no train.py >log/train.log 2>&1; exit 0")


@healthy("mpirun-2-ranks", "mpirun", "two ranks under Open MPI finish, with its usual warnings")
def _(s):
    """A warning about an error counter."""
    s.write("train.py", '''import os, time, warnings
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
warnings.warn("failed to import apex, falling back to torch.optim (this is not an error)")
for step in range(10):
    print(f"iter {step}: loss {4.5 - step / 9:.4f}, time 20.20ms, mfu -100.00%", flush=True)
    time.sleep(0.02)
print("finished", flush=True)
''')
    log_folder(s)
    s.run("mpirun --allow-run-as-root --oversubscribe --tag-output -np 2 python train.py >log/mpi.log 2>&1; exit 0")


@healthy("self-check-of-expected-errors", "plain", "unit tests that expect exceptions run before training and pass")
def _(s):
    """unittest -v with names such as test_raises."""
    s.write("test_data.py", '''import logging
import unittest


class Loader(unittest.TestCase):
    def test_missing_file_raises_file_not_found_error(self):
        with self.assertRaises(FileNotFoundError):
            open("/none/such.json")

    def test_error_is_logged(self):
        logging.error("RuntimeError: simulated failure of the loader")

    def test_zero_division_error(self):
        self.assertRaises(ZeroDivisionError, lambda: 1 / 0)
''')
    plain(s, "python -m unittest -v test_data\nfor i in 1 2 3 4 5; do echo \"step $i/5 loss 0.$((9 - i))12\"; done\necho 'exit code 0'\n")


@healthy("dataset-of-bug-reports", "lockstep", "the training data are bug reports; some are shown")
def _(s):
    """Excerpts of data with error messages, as an ordinary line of the log."""
    s.write("train.py", program(start='''
    if rank == 0:
        for title in ("Killed by signal 9 after 3 epochs", "NCCL WARN Duplicate GPU detected", "OSError: [Errno 28] No space left on device on save", "Traceback (most recent call last): in tokenizer"):
            logger.info("example document: title=%r label=bug", title)
    '''))
    lockstep(s, 2)


@healthy("sigusr1-checkpoint-request", "torchrun", "a signal asks for a checkpoint; the run saves and goes on to its end")
def _(s):
    """SIGUSR1 to both ranks."""
    s.write("train.py", program(imports="import signal", start='''
    signal.signal(signal.SIGUSR1, lambda number, frame: logger.warning("rank %d: received signal %d (SIGUSR1), will save at the next step", rank, number))
    ''', batch='''
        if global_step == 5:
            os.kill(os.getpid(), signal.SIGUSR1)
        '''))
    torchrun(s, 2)


@healthy("exception-ignored-in-destructor-at-exit", "plain", "a destructor fails while the interpreter ends; the work is done")
def _(s):
    """Exception ignored in ... with a traceback."""
    s.write("train.py", '''class Reader:
    def __del__(self):
        self.handle.close()


reader = Reader()
for step in range(6):
    print(f"step {step}/6 | loss {3.0 / (step + 1):.4f}")
print("final loss 0.5000, model saved")
''')
    plain(s, "python train.py\necho \"exit code $?\"\n")


@healthy("resource-tracker-leak-warning", "plain", "multiprocessing warns about leaked shared memory at the end")
def _(s):
    """resource_tracker's warning, made for real."""
    s.write("train.py", '''from multiprocessing import shared_memory

block = shared_memory.SharedMemory(create=True, size=4096)
for step in range(6):
    print(f"step {step}/6 | loss {3.0 / (step + 1):.4f}", flush=True)
block.close()
print("training done", flush=True)
''')
    plain(s, "python train.py\necho \"exit code $?\"\n")


@healthy("lockstep-train-demo", "lockstep", "lockstep's own training finishes")
def _(s):
    """lockstep train taehv --smoke=6."""
    from register import take_run
    s.run(f"{LOCKSTEP} train taehv --smoke=6 --name train >console.txt 2>&1; exit 0", timeout=200)
    take_run(s)
    import shutil
    for path in list((s.work / "log").iterdir()):
        if path.is_dir() and path.name not in ("logs", "metrics"):
            shutil.rmtree(path)


@healthy("k8s-job-succeeded-with-pull-retry", "kubernetes", "the first pull of the image failed, the second worked, the job succeeded", made=FORM)
def _(s):
    """Events with warnings of the past; the container is Completed."""
    import form_cluster
    keep(s, describe_txt=form_cluster.describe("vla-pretrain-master-0", "gpu-node-2/10.0.0.12", "    State:          Terminated\n      Reason:       Completed\n      Exit Code:    0\n    Ready:          False\n    Restart Count:  0\n", """  Warning  Failed     41m               kubelet            Failed to pull image "registry.example.org/train/vla:2026.03": rpc error: code = Unavailable desc = connection reset by peer
  Warning  Failed     41m               kubelet            Error: ErrImagePull
  Normal   Pulling    40m (x2 over 41m) kubelet            Pulling image "registry.example.org/train/vla:2026.03"
  Normal   Pulled     39m               kubelet            Successfully pulled image in 61.2s
  Normal   Started    39m               kubelet            Started container pytorch
""", message="Status:           Succeeded\n"), master_0_log=Log(127, ranks=8).banner().hf(10, 100, total=100).say("{'train_runtime': 301.0, 'train_loss': 2.11, 'epoch': 1.0}"))


@healthy("subprocess-probe-fails-run-goes-on", "plain", "the start script tries tools that are not there; training does not need them")
def _(s):
    """command not found in a probe, then a finished run."""
    s.write("train.py", "for step in range(8):\n    print(f'step {step}/8 loss {4 / (step + 1):.3f}')\nprint('training finished')\n")
    plain(s, """#!/bin/bash
nvidia-smi -L || echo "no GPU here, using the CPU"
ibstat 2>&1 | head -2 || true
module load cuda 2>&1 | head -1
python train.py
code=$?
echo "train.py ended with code $code"
exit $code
""")


@healthy("accelerate-port-taken-another-chosen", "accelerate", "the port is taken; accelerate warns, takes another and finishes")
def _(s):
    """accelerate launch with its default port taken."""
    s.write("train.py", program())
    log_folder(s)
    s.run(f"""{PYTHON} -c 'import socket,time; s=socket.socket(); s.bind(("", 29500)); s.listen(); time.sleep(100)' &
sleep 0.5
{PYTHON} -m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 29500 train.py >log/train.log 2>&1
exit 0""")
