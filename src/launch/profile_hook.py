# Traces steps of a Python program with torch's profiler, without a change to it: `lockstep run --profile A..B` puts this
# file's folder first in PYTHONPATH. A step ends where the program's first optimizer ends its step. Without torch, and
# outside of A..B, it does nothing; whatever fails here is said once and never ends the program.
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _pass_on():
    """The program's own sitecustomize, which this one hides. Children of the program are not traced."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _here]
    kept = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and os.path.abspath(path) != _here]
    if kept:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


class _Trace:
    def __init__(self, first, last, path):
        self.first, self.last, self.path = first, last, path
        self.steps, self.optimizer, self.profile, self.scope = 0, None, None, None

    def say(self, what):
        print(f"lockstep: profile: {what}", file=sys.stderr, flush=True)

    def after_step(self, optimizer, args=None, kwargs=None):
        if self.last == 0 or (self.optimizer is not None and optimizer is not self.optimizer()):
            return
        try:
            self.turn(optimizer)
        except Exception as error:
            self.last = 0
            self.say(f"no trace: {type(error).__name__}: {error}")

    def turn(self, optimizer):
        import torch

        if self.optimizer is None:
            import weakref

            self.optimizer = weakref.ref(optimizer)
        self.steps += 1
        if self.scope is not None:
            self.scope.__exit__(None, None, None)
            self.scope = None
        if self.profile is not None and self.steps >= self.last:
            return self.write(torch)
        if self.profile is None and self.steps == self.first - 1:
            activities = [torch.profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available():
                torch.cuda.synchronize()
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            self.profile = torch.profiler.profile(activities=activities)
            self.profile.__enter__()
        if self.profile is not None:
            self.scope = torch.autograd.profiler.record_function(f"ProfilerStep#{self.steps + 1}")
            self.scope.__enter__()

    def write(self, torch, after=None):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.profile.__exit__(None, None, None)
        self.profile, profile, self.last = None, self.profile, 0
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        new = self.path + ".new.json"
        profile.export_chrome_trace(new)
        if after is not None:  # what came after the last step is none
            with open(new, "rb") as file:
                text = file.read().replace(f'"ProfilerStep#{after}"'.encode(), b'"after the last step"')
            with open(new, "wb") as file:
                file.write(text)
        os.replace(new, self.path)
        self.say(f"steps {self.first} to {self.steps} are in {self.path}")

    def at_exit(self):
        """A program that ended before step B leaves what there is."""
        if self.profile is None:
            if self.last:
                self.say(f"the program ended after {self.steps} steps of an optimizer; the trace begins at {self.first}")
            return
        try:
            import torch

            self.scope.__exit__(None, None, None)
            self.write(torch, after=self.steps + 1)
        except Exception as error:
            self.say(f"no trace: {type(error).__name__}: {error}")


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls back when a module has been imported, once."""

    def __init__(self, name, call):
        self.name, self.call = name, call

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute, call = spec.loader.exec_module, self.call

        def exec_module(module):
            execute(module)
            call(module)

        spec.loader.exec_module = exec_module
        return spec


def _install():
    asked, folder = os.environ.get("LOCKSTEP_PROFILE", ""), os.environ.get("LOCKSTEP_RUN_DIR", "")
    rank = os.environ.get("RANK", "")
    if not asked or not folder or not rank:
        return
    first, last = (int(number) for number in asked.split(".."))
    trace = _Trace(max(first, 2), last, os.path.join(folder, "profile", f"rank-{rank}.json"))

    def register(module):
        try:
            module.register_optimizer_step_post_hook(trace.after_step)
        except Exception as error:
            trace.say(f"this torch has no hook after steps of optimizers ({error}): no trace")
            return
        import atexit

        atexit.register(trace.at_exit)

    sys.meta_path.insert(0, _AfterImport("torch.optim.optimizer", register))


_pass_on()
try:
    _install()
except Exception as failure:
    print(f"lockstep: profile: {failure}", file=sys.stderr, flush=True)
