# Traces steps of a Python program with torch's profiler, without a change to it: `lockstep run --profile A..B` puts this
# file's folder first in PYTHONPATH. A step ends where the program's first optimizer ends its step. Without torch, and
# outside of A..B, it does nothing; whatever fails here is said once and never ends the program.
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading

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


class _AtEnd:
    """Calls back when it goes: in a threading.local, when its thread ends."""

    def __init__(self, call):
        self.call = call

    def __del__(self):
        self.call()


class _Trace:
    def __init__(self, first, last, path):
        self.first, self.last, self.path = first, last, path
        self.steps, self.optimizer, self.profile, self.scope = 0, None, None, None
        self.others = False  # the program's own profiler is prepared or runs
        self.thread, self.of_thread = None, threading.local()  # that began the trace: only there it can end
        self.waiting = None  # the optimizer whose step ended, until the scopes around it end: how many, and who tells
        self.depth, self.unfollow = 0, None

    def say(self, what):
        print(f"lockstep: profile: {what}", file=sys.stderr, flush=True)

    def after_step(self, optimizer, args=None, kwargs=None):
        # Where the first optimizer is gone, the next one that steps takes its place.
        if self.last == 0:
            return self.stop()
        if self.optimizer is not None and self.optimizer() not in (None, optimizer):
            return
        self.end_step()
        self.waiting = optimizer
        if self.profile is None:
            self.end_step()

    def end_step(self):
        if self.waiting is None or self.last == 0:
            return
        if self.is_in_backward() and self.profile is not None:
            return
        optimizer, self.waiting = self.waiting, None
        try:
            if self.is_in_backward():
                return self.give_up("an optimizer steps inside of the backward")
            if self.is_elsewhere():
                return self.give_up("steps of the program run in several threads")
            self.turn(optimizer)
        except Exception as error:
            self.give_up(f"{type(error).__name__}: {error}")

    def give_up(self, why):
        self.last = 0
        self.say(f"no trace: {why}")

    def is_elsewhere(self):
        """Ending a trace in another thread than its own crashes the interpreter: then it is left as it is."""
        return self.profile is not None and self.thread != threading.get_ident()

    def is_in_backward(self):
        """A backward keeps torch's profilers to itself: one that is begun or ended in it crashes the interpreter."""
        import torch

        task = getattr(torch._C, "_current_graph_task_id", None)
        return task is not None and task() != -1

    def stop(self):
        """Ends a trace that was given up, as soon as its own thread gets here: left running it grows, and crashes the
        interpreter when that ends."""
        if self.profile is None or self.is_elsewhere() or self.is_in_backward():
            return
        self.profile, profile = None, self.profile
        try:
            if self.unfollow is not None:
                self.unfollow()
            if self.scope is not None:
                self.scope.__exit__(None, None, None)
                self.scope = None
            profile.__exit__(None, None, None)
        except Exception as error:
            self.say(f"{type(error).__name__}: {error}")

    def turn(self, optimizer):
        import torch

        if self.optimizer is None or self.optimizer() is None:
            import weakref

            self.optimizer = weakref.ref(optimizer)
        self.steps += 1
        if self.scope is not None:
            self.scope.__exit__(None, None, None)
            self.scope = None
        if self.profile is not None and self.steps >= self.last:
            return self.write(torch)
        if self.profile is None and self.steps == self.first - 1:
            if self.others:
                return self.give_up("the program runs torch's profiler itself")
            activities = [torch.profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available():
                torch.cuda.synchronize()
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            profile = torch.profiler.profile(activities=activities)
            profile.__enter__()
            self.profile, self.others, self.thread = profile, False, threading.get_ident()
            self.of_thread.end = _AtEnd(lambda: self.end_early("the thread of these steps ended") if self.last and self.profile else self.stop())
            self.follow_scopes(torch.autograd.profiler.record_function)
        if self.profile is not None:
            self.scope = torch.autograd.profiler.record_function(f"ProfilerStep#{self.steps + 1}")
            self.scope.__enter__()
            self.depth = 0

    def follow_scopes(self, scopes):
        """A traced step ends with the outermost scope around the optimizer's step, torch's or the program's: viewers
        drop scopes that overlap others in part. Where that scope lasts on, the step ends with the next one's."""
        enter, leave = scopes.__enter__, scopes.__exit__

        def entered(scope):
            if self.last == 0:
                self.stop()
            elif threading.get_ident() == self.thread:
                self.depth += 1
            return enter(scope)

        def left(scope, *what):
            done = leave(scope, *what)
            if threading.get_ident() == self.thread and scope is not self.scope:
                self.depth = max(0, self.depth - 1)
                if self.depth == 0:
                    self.end_step()
            return done

        def unfollow():
            scopes.__enter__, scopes.__exit__ = enter, leave

        scopes.__enter__, scopes.__exit__, self.unfollow = entered, left, unfollow

    def give_way_to_others(self, profiler):
        """Ends this trace before the program begins one of its own: two at once crash the interpreter."""
        prepare, disable = profiler._prepare_profiler, profiler._disable_profiler

        def prepared(*args, **kwargs):
            if self.last and self.profile is not None:
                self.end_early("the program runs torch's profiler itself from here on")
            self.stop()
            self.others = True
            return prepare(*args, **kwargs)

        def disabled(*args, **kwargs):
            self.others = False
            return disable(*args, **kwargs)

        profiler._prepare_profiler, profiler._disable_profiler = prepared, disabled

    def write(self, torch, after=None):
        self.unfollow()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.profile.__exit__(None, None, None)
        self.profile, profile, self.last = None, self.profile, 0
        if self.steps < self.first:
            return self.give_up(f"step {self.first} did not end")
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

    def end_early(self, why):
        """Before step B there is what there is."""
        if self.is_elsewhere():
            return self.give_up(f"{why}, in another thread than its steps")
        self.end_step()
        if self.profile is None:
            return
        try:
            import torch

            self.say(why)
            self.scope.__exit__(None, None, None)
            self.scope = None
            self.write(torch, after=self.steps + 1)
        except Exception as error:
            self.give_up(f"{type(error).__name__}: {error}")

    def in_child(self):
        """After a fork: the trace is the parent's. Ending it here could hang."""
        self.last = 0
        self.of_parent, self.profile = self.profile, None

    def at_exit(self):
        if self.last and self.profile is not None:
            self.end_early(f"the program ended after {self.steps} steps")
        elif self.last == 0:
            self.stop()
        else:
            self.say(f"the program ended after {self.steps} steps of an optimizer; the trace begins at {self.first}")


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
        try:
            trace.give_way_to_others(importlib.import_module("torch.autograd.profiler"))
        except Exception as error:
            trace.say(f"the program must not run torch's profiler itself: {error}")
        import atexit

        atexit.register(trace.at_exit)
        os.register_at_fork(after_in_child=trace.in_child)

    sys.meta_path.insert(0, _AfterImport("torch.optim.optimizer", register))


_pass_on()
try:
    _install()
except Exception as failure:
    print(f"lockstep: profile: {failure}", file=sys.stderr, flush=True)
