// io_uring by its three system calls: liburing is not on every machine, and this needs one kind of request.
#include <fmt/format.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "cache/block_reader.h"

namespace lockstep::cache {
namespace {

class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (at_ != nullptr) ::munmap(at_, bytes_);
  }
  bool Map(int fd, size_t bytes, off_t offset) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
    if (at == MAP_FAILED) return false;
    at_ = at;
    bytes_ = bytes;
    return true;
  }
  template <typename T>
  T* At(uint32_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(at_) + offset);
  }

 private:
  void* at_ = nullptr;
  size_t bytes_ = 0;
};

class UringReader final : public BlockReader {
 public:
  Status Start(unsigned depth) {
    io_uring_params params{};
    fd_.reset(static_cast<int>(::syscall(SYS_io_uring_setup, depth, &params)));
    if (!fd_) return Status(Code::kEnvironment, "io_uring is not allowed here: " + ErrnoText(errno));
    depth_ = params.sq_entries;
    if (!queue_.Map(fd_.get(), params.sq_off.array + params.sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING) ||
        !completions_.Map(fd_.get(), params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe),
                          IORING_OFF_CQ_RING) ||
        !entries_.Map(fd_.get(), params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES)) {
      return Status(Code::kEnvironment, "io_uring: cannot map its rings: " + ErrnoText(errno));
    }
    p_ = params;
    // IORING_OP_READ is younger than io_uring; a kernel without the probe has not got it either.
    std::vector<char> memory(sizeof(io_uring_probe) + 256 * sizeof(io_uring_probe_op));
    auto* probe = reinterpret_cast<io_uring_probe*>(memory.data());
    if (::syscall(SYS_io_uring_register, fd_.get(), IORING_REGISTER_PROBE, probe, 256) != 0 ||
        probe->last_op < IORING_OP_READ || (probe->ops[IORING_OP_READ].flags & IO_URING_OP_SUPPORTED) == 0) {
      return Status(Code::kEnvironment, "io_uring of this kernel cannot read");
    }
    return Status::Ok();
  }

  std::string_view name() const override { return "io_uring"; }

  void Read(std::span<BlockRead> reads, const std::function<void(size_t)>& done) override {
    const std::lock_guard<std::mutex> alone(mutex_);
    std::vector<size_t> have(reads.size(), 0);  // bytes read so far
    std::vector<size_t> again;                  // short reads to go on with
    size_t next = 0, open = 0, over = 0;
    unsigned queued = 0;  // and not submitted yet
    // Fills the queue and submits it; waits for at least `wait` completions.
    const auto submit = [&](unsigned wait) {
      while (open < depth_ && (!again.empty() || next < reads.size())) {
        size_t i = next;
        if (!again.empty()) {
          i = again.back();
          again.pop_back();
        } else {
          ++next;
        }
        Queue(reads[i], have[i], i);
        ++queued;
        ++open;
      }
      return (queued == 0 && wait == 0) || Enter(&queued, wait);
    };
    while (over < reads.size()) {
      bool usable = submit(1);
      io_uring_cqe cqe;
      while (usable && Take(&cqe)) {
        --open;
        const auto i = static_cast<size_t>(cqe.user_data);
        BlockRead& read = reads[i];
        if (cqe.res == -EINTR || cqe.res == -EAGAIN) {
          again.push_back(i);
          continue;
        }
        if (cqe.res > 0) have[i] += static_cast<size_t>(cqe.res);
        if (cqe.res > 0 && have[i] < read.needed) {
          again.push_back(i);
          continue;
        }
        read.error = cqe.res < 0 ? -cqe.res : have[i] < read.needed ? ENODATA : 0;
        have[i] = kOver;
        ++over;
        usable = submit(0);  // the storage stays busy while this record is verified
        done(i);
      }
      if (usable) continue;
      // The ring is of no use any more: the rest by pread, in this thread.
      Drain(reads, &have, open - queued, done);
      fd_.reset();
      for (size_t i = 0; i < reads.size(); ++i) {
        if (have[i] == kOver) continue;
        reads[i].error = ReadBlocks(&reads[i]);
        done(i);
      }
      return;
    }
  }

 private:
  static constexpr size_t kOver = SIZE_MAX;

  void Queue(const BlockRead& read, size_t have, size_t number) {
    auto* tail = queue_.At<uint32_t>(p_.sq_off.tail);
    const uint32_t mask = *queue_.At<uint32_t>(p_.sq_off.ring_mask);
    const uint32_t at = *tail & mask;
    io_uring_sqe& sqe = entries_.At<io_uring_sqe>(0)[at];
    std::memset(&sqe, 0, sizeof sqe);
    sqe.opcode = IORING_OP_READ;
    sqe.fd = read.fd;
    sqe.off = read.offset + have;
    sqe.addr = reinterpret_cast<uint64_t>(read.to + have);
    sqe.len = static_cast<uint32_t>(std::min<size_t>(read.bytes - have, 1u << 30));
    sqe.user_data = number;
    queue_.At<uint32_t>(p_.sq_off.array)[at] = at;
    std::atomic_ref<uint32_t>(*tail).store(*tail + 1, std::memory_order_release);
  }

  // Submits and waits for at least `wait`. False: an error, with as many left in *queued as were not submitted.
  bool Enter(unsigned* queued, unsigned wait) {
    while (true) {
      const long n = ::syscall(SYS_io_uring_enter, fd_.get(), *queued, wait, IORING_ENTER_GETEVENTS, nullptr, 0);
      if (n >= 0) {
        *queued -= std::min(*queued, static_cast<unsigned>(n));
        if (*queued == 0) return true;
      } else if (errno != EINTR && errno != EAGAIN && errno != EBUSY) {
        return false;
      }
    }
  }

  bool Take(io_uring_cqe* out) {
    auto* head = completions_.At<uint32_t>(p_.cq_off.head);
    const uint32_t tail =
        std::atomic_ref<uint32_t>(*completions_.At<uint32_t>(p_.cq_off.tail)).load(std::memory_order_acquire);
    if (*head == tail) return false;
    const uint32_t mask = *completions_.At<uint32_t>(p_.cq_off.ring_mask);
    *out = completions_.At<io_uring_cqe>(p_.cq_off.cqes)[*head & mask];
    std::atomic_ref<uint32_t>(*head).store(*head + 1, std::memory_order_release);
    return true;
  }

  // Waits for what the kernel still writes into memory.
  void Drain(std::span<BlockRead> reads, std::vector<size_t>* have, size_t open,
             const std::function<void(size_t)>& done) {
    io_uring_cqe cqe;
    while (open > 0) {
      if (!Take(&cqe)) {
        ::usleep(100);
        continue;
      }
      --open;
      const auto i = static_cast<size_t>(cqe.user_data);
      if ((*have)[i] > 0 || cqe.res < static_cast<int64_t>(reads[i].needed)) continue;  // read again as a whole
      reads[i].error = 0;
      (*have)[i] = kOver;
      done(i);
    }
  }

  std::mutex mutex_;
  UniqueFd fd_;
  io_uring_params p_{};
  unsigned depth_ = 0;
  Mapping queue_, completions_, entries_;
};

}  // namespace

Result<std::unique_ptr<BlockReader>> MakeUringReader(unsigned depth) {
  auto reader = std::make_unique<UringReader>();
  LOCKSTEP_RETURN_IF_ERROR(reader->Start(std::clamp(depth, 1u, 256u)));
  return std::unique_ptr<BlockReader>(std::move(reader));
}

}  // namespace lockstep::cache
