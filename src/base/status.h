// Errors as values. A Status says what went wrong (message: what, where, expected, found), what to do about it (hint),
// and its class (code), from which the program's exit code follows. Result<T> is a value or such a Status.
//
//   Result<int> port = ParsePort(text);
//   if (!port.ok()) return port.status().Context("--master-port");
//   Use(*port);
//
// Plain values: copyable, no ownership, any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace lockstep {

enum class Code {
  kOk = 0,
  kUsage,        // flags, config, bad input                    -> exit 2
  kEnvironment,  // the machine: files, permissions, programs   -> exit 3
  kRendezvous,   // launchers could not form the job            -> exit 4
  kRankFailed,   // a rank failed                               -> exit 5
  kNodeLost,     // a node was lost                             -> exit 6
  kStalled,      // no progress                                 -> exit 7
  kTimeout,      // a deadline passed (callers turn this into one of the above)
  kInterrupted,  // stopped by a signal
  kInternal,     // a defect of ours
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::string hint = "")
      : code_(code), message_(std::move(message)), hint_(std::move(hint)) {}

  static Status Ok() { return Status(); }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // What the reader should do; may be empty.
  const std::string& hint() const { return hint_; }

  // Puts "where: " before the message.
  Status Context(const std::string& where) const {
    return ok() ? *this : Status(code_, where + ": " + message_, hint_);
  }
  Status WithHint(std::string hint) const { return ok() ? *this : Status(code_, message_, std::move(hint)); }
  Status WithCode(Code code) const { return ok() ? *this : Status(code, message_, hint_); }

  // "message" or "message\n  do: hint".
  std::string ToString() const { return hint_.empty() ? message_ : message_ + "\n  do: " + hint_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
  std::string hint_;
};

// The process exit code of the contract (docs/exit-codes.md) for a status.
int ExitCode(const Status& status);

// "ENOENT: No such file or directory" for an errno value.
std::string ErrnoText(int error);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : value_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(value_); }
  Status status() const { return ok() ? Status() : std::get<Status>(value_); }
  T& operator*() & { return std::get<T>(value_); }
  const T& operator*() const& { return std::get<T>(value_); }
  T operator*() && { return std::move(std::get<T>(value_)); }  // by value: `for (x : *F())` must not dangle
  T* operator->() { return &std::get<T>(value_); }
  const T* operator->() const { return &std::get<T>(value_); }

 private:
  std::variant<T, Status> value_;
};

}  // namespace lockstep

// Returns early with the status of an expression that failed.
#define LOCKSTEP_RETURN_IF_ERROR(expr)                   \
  do {                                                   \
    ::lockstep::Status lockstep_status_ = (expr);        \
    if (!lockstep_status_.ok()) return lockstep_status_; \
  } while (0)
