// Python tracebacks as logs hold them.
#include "diagnose/traceback.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "diagnose/exceptions.h"

namespace lockstep::diagnose {
namespace {

// Feeds a whole text; the first line opens the traceback.
Traceback Read(const std::string& text) {
  const std::vector<std::string> lines = Split(text, '\n');
  size_t first = 0;
  while (!Traceback::Begins(lines[first])) ++first;
  Traceback traceback(lines[first], first + 1);
  for (size_t i = first + 1; i < lines.size(); ++i) {
    if (traceback.Feed(lines[i], i + 1, false) == Traceback::Verdict::kEnded) break;
  }
  return traceback;
}

TEST(Traceback, NamesTheInnermostFrameOfTheUser) {
  const Traceback t = Read(R"(Traceback (most recent call last):
  File "/home/u/train.py", line 31, in <module>
    main()
  File "/home/u/train.py", line 22, in main
    loss = model(x)
           ^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1511, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x12 and 16x32))");
  ASSERT_EQ(t.raised().size(), 1u);
  const Raised& r = t.raised()[0];
  EXPECT_EQ(r.type, "RuntimeError");
  EXPECT_EQ(r.message, "mat1 and mat2 shapes cannot be multiplied (8x12 and 16x32)");
  EXPECT_EQ(r.line, 9u);
  EXPECT_EQ(r.user.file, "/home/u/train.py");
  EXPECT_EQ(r.user.line, 22);
  EXPECT_EQ(r.user.source, "loss = model(x)");
  EXPECT_EQ(r.innermost.line, 1511);
}

TEST(Traceback, FollowsChains) {
  const Traceback t = Read(R"(Traceback (most recent call last):
  File "a.py", line 1, in f
    x["k"]
KeyError: 'k'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 2, in <module>
    f()
ConfigError: no k

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
    g()
OSError: [Errno 5] Input/output error)");
  ASSERT_EQ(t.raised().size(), 3u);
  EXPECT_EQ(t.raised()[0].type, "KeyError");
  EXPECT_EQ(t.raised()[1].link, Link::kDirectCause);
  EXPECT_EQ(t.raised()[2].link, Link::kDuringHandling);
  EXPECT_EQ(t.raised()[2].user.line, 3);
}

TEST(Traceback, FindsTheOriginalInALoaderWorker) {
  const Traceback t = Read(R"(Traceback (most recent call last):
  File "train.py", line 9, in <module>
    for x in loader:
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/opt/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 308, in _worker_loop
    data = fetcher.fetch(index)
  File "data.py", line 77, in __getitem__
    raise ValueError("sample 5 is empty")
ValueError: sample 5 is empty)");
  ASSERT_EQ(t.raised().size(), 2u);
  EXPECT_EQ(t.raised()[1].link, Link::kOriginal);
  EXPECT_EQ(t.raised()[1].user.file, "data.py");
  EXPECT_EQ(t.raised()[1].message, "sample 5 is empty");
}

TEST(Traceback, ReadsSyntaxErrors) {
  const Traceback t = Read(
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    import b\n  File \"/x/b.py\", "
      "line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax");
  ASSERT_EQ(t.raised().size(), 1u);
  EXPECT_EQ(t.raised()[0].type, "SyntaxError");
  EXPECT_EQ(t.raised()[0].user.file, "/x/b.py");
  EXPECT_EQ(t.raised()[0].user.line, 3);
}

TEST(Traceback, ReadsExceptionGroups) {
  const Traceback t = Read(R"(  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 9, in <module>
  |     raise ExceptionGroup("two", [ValueError("x"), TypeError("y")])
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "a.py", line 3, in f
    |     raise ValueError("x")
    | ValueError: x
    +------------------------------------)");
  ASSERT_GE(t.raised().size(), 2u);
  EXPECT_EQ(t.raised()[1].type, "ValueError");
  EXPECT_EQ(t.raised()[1].user.line, 3);
}

TEST(Traceback, ReadsRichBoxes) {
  const Traceback t = Read(
      "╭─────────────────── Traceback (most recent call last) ────────────────────╮\n"
      "│ /home/u/train.py:12 in <module>                                          │\n"
      "│                                                                          │\n"
      "│    11                                                                    │\n"
      "│ ❱ 12 main()                                                              │\n"
      "╰──────────────────────────────────────────────────────────────────────────╯\n"
      "ValueError: bad value");
  ASSERT_EQ(t.raised().size(), 1u);
  EXPECT_EQ(t.raised()[0].type, "ValueError");
  EXPECT_EQ(t.raised()[0].user.file, "/home/u/train.py");
  EXPECT_EQ(t.raised()[0].user.source, "main()");
}

TEST(Traceback, ReadsAnIndentedOneInsideTorchrunsTable) {
  const Traceback t = Read(R"(  traceback : Traceback (most recent call last):
    File "/opt/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper
      return f(*args, **kwargs)
    File "/home/u/train.py", line 8, in main
      raise ValueError("x")
    ValueError: x)");
  ASSERT_EQ(t.raised().size(), 1u);
  EXPECT_EQ(t.raised()[0].type, "ValueError");
  EXPECT_EQ(t.raised()[0].user.line, 8);
}

TEST(Traceback, ReadsFaulthandlersDump) {
  const Traceback t = Read(R"(Fatal Python error: Segmentation fault

Thread 0x00007f1 (most recent call first):
  File "/opt/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f2 (most recent call first):
  File "/opt/lib/python3.11/site-packages/numpy/x.py", line 3 in run
  File "/home/u/train.py", line 44 in step
  File "/home/u/train.py", line 90 in <module>)");
  ASSERT_EQ(t.raised().size(), 1u);
  EXPECT_TRUE(t.fault());
  EXPECT_EQ(t.raised()[0].message, "Segmentation fault");
  EXPECT_EQ(t.raised()[0].user.line, 44);
  EXPECT_EQ(t.raised()[0].innermost.line, 3);
}

TEST(Traceback, TellsTwoRanksOnOneStreamApart) {
  const Traceback t = Read(R"(Traceback (most recent call last):
Traceback (most recent call last):
  File "train.py", line 5, in <module>
    main()
KeyError: 'LOCAL_RANK'
  File "train.py", line 5, in <module>
    main()
KeyError: 'LOCAL_RANK')");
  ASSERT_GE(t.raised().size(), 1u);
  EXPECT_EQ(t.raised()[0].type, "KeyError");
}

TEST(Traceback, DoesNotTakeSentencesForExceptions) {
  Traceback t("Traceback (most recent call last):", 1);
  EXPECT_EQ(t.Feed("  File \"a.py\", line 1, in f", 2, false), Traceback::Verdict::kMine);
  EXPECT_EQ(t.Feed("    f()", 3, false), Traceback::Verdict::kMine);
  EXPECT_EQ(t.Feed("this is another rank talking", 4, false), Traceback::Verdict::kForeign);
  EXPECT_EQ(t.Feed("step: 5", 5, false), Traceback::Verdict::kForeign);
  EXPECT_FALSE(t.has_exception());
  EXPECT_EQ(t.Feed("torch.cuda.OutOfMemoryError: CUDA out of memory.", 6, false), Traceback::Verdict::kMine);
  EXPECT_TRUE(t.has_exception());
}

TEST(Exceptions, GetIdsFromTheirClass) {
  EXPECT_EQ(ExceptionId("ZeroDivisionError"), "py-zero-division-error");
  EXPECT_EQ(ExceptionId("torch.cuda.OutOfMemoryError"), "py-out-of-memory-error");
  EXPECT_EQ(ExceptionId("json.decoder.JSONDecodeError"), "py-json-decode-error");
  EXPECT_EQ(ExceptionId("ray.exceptions.RayTaskError(ValueError)"), "py-ray-task-error");
  EXPECT_EQ(ExceptionId("OSError"), "py-os-error");
  EXPECT_EQ(ExceptionId("_"), "py-exception");
}

TEST(Exceptions, OfAPeerAreConsequences) {
  EXPECT_EQ(RuleFor("BrokenPipeError", "").role, Role::kConsequence);
  EXPECT_EQ(RuleFor("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "").role, Role::kTrigger);
  EXPECT_EQ(RuleFor("ValueError", "").role, Role::kRoot);
  EXPECT_EQ(RuleFor("NeverHeardOfError", "").role, Role::kRoot);
}

TEST(Exceptions, LibraryFilesAreNotTheUsers) {
  EXPECT_TRUE(IsLibraryFile("/opt/venv/lib/python3.11/site-packages/torch/x.py"));
  EXPECT_TRUE(IsLibraryFile("/usr/lib/python3/dist-packages/yaml/x.py"));
  EXPECT_TRUE(IsLibraryFile("<frozen runpy>"));
  EXPECT_FALSE(IsLibraryFile("/home/u/train.py"));
  EXPECT_FALSE(IsLibraryFile("train.py"));
}

}  // namespace
}  // namespace lockstep::diagnose
