#include "cache/encoder_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "base/env_file.h"
#include "base/environment.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "cache/digest.h"

namespace lockstep::cache {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 36;  // of an answer: a program that prints text must not fill memory

// 0, or the system's reason. A program that is gone is EPIPE, never a signal.
int SendAll(int fd, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::send(fd, data, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

bool ReceiveAll(int fd, char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::read(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

constexpr char kProtocol[] =
    "it must answer each message with its length (8 bytes, little-endian) and a safetensors document, and print to "
    "stderr only: docs/formats/feature-cache.md shows how";

}  // namespace

Result<EncoderProgram> EncoderProgram::Start(const std::string& path, const std::vector<std::string>& arguments) {
  EncoderProgram program;
  program.path_ = path;
  int input[2], output[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) return FileError("start", path, errno);
  program.to_.reset(input[0]);
  const UniqueFd stdin_fd(input[1]);
  if (::pipe2(output, O_CLOEXEC) != 0) return FileError("start", path, errno);
  program.from_.reset(output[0]);
  const UniqueFd stdout_fd(output[1]);
  SpawnOptions options;
  if (path.ends_with(".py")) options.argv.emplace_back("python3");
  options.argv.push_back(path);
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.env = ToStrings(CurrentEnvironment());
  options.stdin_fd = stdin_fd.get();
  options.stdout_fd = stdout_fd.get();
  Result<Process> process = Spawn(options);
  if (!process.ok()) return process.status().Context("encoder program");
  program.process_ = std::move(*process);
  return program;
}

EncoderProgram::~EncoderProgram() {
  if (process_.pid <= 0 || !to_) return;
  to_.reset();  // the end of its input
  for (int i = 0; i < 20; ++i) {
    if (TryWait(process_.pid)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  SignalGroup(process_, SIGKILL);
  while (!TryWait(process_.pid)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

Status EncoderProgram::Ended(const std::string& what) const {
  return Status(Code::kEnvironment, fmt::format("encoder program {}: {}", Printable(path_), what), kProtocol);
}

Result<std::vector<NamedTensor>> EncoderProgram::Call(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& tensor : tensors) specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  const Result<SafetensorsLayout> layout = LayoutSafetensors(specs, {});
  if (!layout.ok()) return layout.status();
  int failed = SendAll(to_.get(), reinterpret_cast<const char*>(&layout->file_bytes), 8);
  if (failed == 0) failed = SendAll(to_.get(), layout->header.data(), layout->header.size());
  for (const TensorInfo& info : layout->tensors) {
    for (const NamedTensor& tensor : tensors) {
      if (failed != 0 || tensor.name != info.name) continue;
      failed = SendAll(to_.get(), reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    }
  }
  if (failed != 0) return Ended("it takes no input any more: " + ErrnoText(failed));
  uint64_t bytes = 0;
  if (!ReceiveAll(from_.get(), reinterpret_cast<char*>(&bytes), 8)) return Ended("it ended without an answer");
  if (bytes < 8 || bytes > kMostBytes) return Ended(fmt::format("its answer begins with the length {}", bytes));
  std::vector<char> answer(bytes);
  if (!ReceiveAll(from_.get(), answer.data(), answer.size())) return Ended("its answer ends early");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, answer.data(), 8);
  if (header_bytes > bytes - 8) return Ended("its answer is no safetensors document");
  const auto header = ParseSafetensorsHeader({answer.data() + 8, header_bytes}, bytes, "answer of " + path_);
  if (!header.ok()) return header.status().WithHint(kProtocol);
  std::vector<NamedTensor> given;
  for (const TensorInfo& info : header->tensors) {
    const auto* at = reinterpret_cast<const std::byte*>(answer.data()) + info.offset;
    given.push_back({info.name, info.dtype, info.shape, {at, at + info.bytes}});
  }
  return given;
}

Result<std::string> ProgramDigest(const std::string& path, const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& weights) {
  Sha256 sum;
  const auto add = [&](const std::string& file) -> Status {
    const Result<std::string> digest = FileDigest(file);
    if (!digest.ok()) return digest.status();
    sum.Text(*digest);
    return Status::Ok();
  };
  LOCKSTEP_RETURN_IF_ERROR(add(path));
  sum.Update(uint64_t{arguments.size()});
  for (const std::string& argument : arguments) sum.Text(argument);
  for (const std::string& file : weights) LOCKSTEP_RETURN_IF_ERROR(add(file));
  return "sha256:" + Hex(sum.Finish());
}

}  // namespace lockstep::cache
