#include "record/staging.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace lockstep::record {
namespace {

constexpr size_t kHugePage = 2u << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Status Staging::Grow(size_t bytes) {
  if (bytes <= bytes_) return Status::Ok();
  Free();
  bytes = RoundUp(bytes, kHugePage);
  void* memory = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Status(Code::kEnvironment, fmt::format("no memory for {} bytes of checkpoint staging", bytes),
                  "give the job more memory, or lower checkpoint.staging");
  }
  mapped_ = memory;
  mapped_bytes_ = bytes + kHugePage;
  data_ = reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(memory), kHugePage));
  bytes_ = bytes;
  (void)::madvise(data_, bytes_, MADV_HUGEPAGE);
  for (size_t at = 0; at < bytes_; at += kPage) static_cast<volatile char*>(data_)[at] = 0;
  return Status::Ok();
}

void Staging::Free() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
  mapped_ = nullptr;
  data_ = nullptr;
  bytes_ = mapped_bytes_ = 0;
}

void StreamCopy(void* dst, const void* src, size_t bytes) {
#if defined(__SSE2__)
  char* to = static_cast<char*>(dst);
  const char* from = static_cast<const char*>(src);
  const size_t head = std::min<size_t>((16 - reinterpret_cast<uintptr_t>(to) % 16) % 16, bytes);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
    const __m128i* in = reinterpret_cast<const __m128i*>(from);
    __m128i* out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  std::memcpy(to, from, bytes);
  _mm_sfence();
#else
  std::memcpy(dst, src, bytes);
#endif
}

std::vector<FileSource> SourcesOf(const PlannedFile& file, uint64_t offset, size_t bytes) {
  std::vector<FileSource> found;
  auto source = std::partition_point(file.sources.begin(), file.sources.end(),
                                     [&](const FileSource& s) { return s.offset + s.bytes <= offset; });
  for (; source != file.sources.end() && source->offset < offset + bytes; ++source) {
    const uint64_t begin = std::max(source->offset, offset);
    const uint64_t end = std::min(source->offset + source->bytes, offset + bytes);
    found.push_back({source->rank, source->tensor, source->from + (begin - source->offset), begin, end - begin});
  }
  return found;
}

PartStream PartStream::Make(const CheckpointPlan& plan, const std::vector<CheckpointTensor>& tensors, int rank,
                            size_t chunk_bytes, size_t limit) {
  PartStream stream;
  for (size_t f = 0; f < plan.files.size(); ++f) {
    const PlannedFile& file = plan.files[f];
    const bool mine = file.writer == rank;
    const bool travels = std::any_of(file.sources.begin(), file.sources.end(),
                                     [&](const FileSource& source) { return source.rank != file.writer; });
    if (!mine && !travels) continue;
    for (uint64_t offset = 0; offset < file.layout.file_bytes; offset += chunk_bytes) {
      Chunk chunk;
      chunk.file = f;
      chunk.offset = offset;
      chunk.bytes = static_cast<size_t>(std::min<uint64_t>(chunk_bytes, file.layout.file_bytes - offset));
      Block block;
      const auto add = [&](size_t at, const char* src, size_t bytes, bool header) {
        stream.slices.push_back({stream.blocks.size(), at, src, bytes, header});
        ++block.slices;
      };
      if (mine) {
        // From a page on, so that it can be written past the page cache as it is.
        block.bytes = RoundUp(chunk.bytes, kPage);
        const std::string& header = file.layout.header;
        if (offset < header.size()) {
          add(0, header.data() + offset, std::min<size_t>(chunk.bytes, header.size() - offset), true);
        }
      }
      std::map<int, size_t> sent;
      for (const FileSource& source : SourcesOf(file, offset, chunk.bytes)) {
        if (source.rank != file.writer) sent[source.rank] += source.bytes;
        if (source.rank != rank) continue;
        const size_t at = mine ? source.offset - offset : block.bytes;
        add(at, LocalBytes(tensors[source.tensor], rank, source.from), source.bytes, false);
        if (!mine) block.bytes += source.bytes;
      }
      for (const auto& [from, bytes] : sent) chunk.sent.push_back({from, bytes});
      if (block.bytes > 0) {
        block.bytes = RoundUp(block.bytes, kPage);
        chunk.block = stream.blocks.size();
        stream.blocks.push_back(block);
      }
      if (chunk.block != Chunk::kNoBlock || !chunk.sent.empty()) stream.chunks.push_back(std::move(chunk));
    }
  }
  size_t total = 0, largest = 0;
  for (const Block& block : stream.blocks) {
    total += block.bytes;
    largest = std::max(largest, block.bytes);
  }
  stream.staging = std::min(total, std::max(limit / kPage * kPage, largest));
  uint64_t start = 0;
  for (Block& block : stream.blocks) {
    if (start % stream.staging + block.bytes > stream.staging) start = (start / stream.staging + 1) * stream.staging;
    block.start = start;
    start += block.bytes;
  }
  return stream;
}

}  // namespace lockstep::record
