#include "cache/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <unordered_map>

#include "base/clock.h"
#include "cache/block_reader.h"
#include "cache/key_index.h"
#include "cache/quantise.h"
#include "cache/unit.h"

namespace lockstep::cache {
struct Reader::Inside {
  Inside(Folder given, ReaderOptions wanted) : folder(std::move(given)), options(wanted) {
    columns = folder.description().Columns();
    for (const FieldSpec& field : folder.description().fields) {
      first_column.push_back(column_count);
      column_count += field.stored == Storage::kF8 || field.stored == Storage::kInt8 ? 2 : 1;
    }
    if (options.uring) blocks = MakeBlockReader(options.depth);
    if (!blocks) blocks = MakePreadReader(options.depth);
  }

  Folder folder;
  ReaderOptions options;
  std::vector<Column> columns;
  std::vector<size_t> first_column;
  size_t column_count = 0;
  std::unique_ptr<BlockReader> blocks;

  mutable std::mutex mutex;  // everything below
  KeyIndex index;
  std::list<std::pair<uint32_t, std::shared_ptr<const UnitFile>>> recent;  // newest first
  std::unordered_map<uint32_t, decltype(recent)::iterator> open;
  std::vector<BlockMemory> slabs;  // kept for the next batch
  ReaderStats stats;
  bool direct = true;

  Result<std::shared_ptr<const UnitFile>> Unit(uint32_t number) {
    const auto found = open.find(number);
    if (found != open.end()) {
      recent.splice(recent.begin(), recent, found->second);
      return recent.front().second;
    }
    const std::string path = folder.UnitPath(index.unit(number));
    auto unit = UnitFile::Open(path, folder.id(), columns, options.direct);
    // A stale handle or a passing error: once more.
    if (!unit.ok()) unit = UnitFile::Open(path, folder.id(), columns, options.direct);
    if (!unit.ok()) return unit.status();
    direct = direct && (*unit)->direct();
    recent.emplace_front(number, *unit);
    open[number] = recent.begin();
    if (recent.size() > options.open_units) {
      open.erase(recent.back().first);
      recent.pop_back();
    }
    return *unit;
  }

  // The unit and row of a request, or its outcome.
  std::shared_ptr<const UnitFile> Locate(Request* request, uint64_t* row) {
    request->outcome = Outcome::kMiss;
    for (const KeyIndex::Entry& entry : index.Find(request->key.key)) {
      const bool fresh = !open.contains(entry.unit);
      Result<std::shared_ptr<const UnitFile>> unit = Unit(entry.unit);
      if (!unit.ok()) {
        request->outcome = Outcome::kDamaged;
        request->why = unit.status().message();
        continue;
      }
      if (fresh && !index.Agrees(entry.unit, **unit)) {
        // The unit is right, and what was stored about the others is in doubt.
        recent.clear();
        open.clear();
        if (const Status rebuilt = index.Rebuild(folder); !rebuilt.ok()) {
          request->outcome = Outcome::kUnreadable;
          request->why = rebuilt.message();
          return nullptr;
        }
        return Locate(request, row);  // once: nothing is known from a stored index any more
      }
      if (entry.row >= (*unit)->rows() || (*unit)->key(entry.row) != request->key.key) continue;
      *row = entry.row;
      return *unit;
    }
    return nullptr;
  }

  Status Refresh() {
    const std::lock_guard<std::mutex> hold(mutex);
    LOCKSTEP_RETURN_IF_ERROR(index.Refresh(folder));
    if (index.unsaved() >= std::max(options.save_after, index.units() / 8)) {
      static_cast<void>(index.Save(folder));  // where it may not be written, the next start opens the units again
    }
    return Status::Ok();
  }

  void Read(std::span<Request> requests);
  // Units of requests that the file system refused are opened anew: a handle may be stale while the file is well.
  void Reopen(std::span<const Request> requests);
  void Deliver(Request* request, std::span<const std::byte* const> data) const;
};

namespace {

// One column of one record on its way.
struct Piece {
  size_t request;
  size_t column;
  std::shared_ptr<const UnitFile> unit;
  uint64_t row;
  size_t skip;            // bytes read before the row, for alignment
  const std::byte* data;  // of the row, once it is read
};

}  // namespace

// Fields from columns, in the order of items that was asked for. data[column] is null where it was read in place.
void Reader::Inside::Deliver(Request* request, std::span<const std::byte* const> data) const {
  const std::vector<FieldSpec>& fields = folder.description().fields;
  std::vector<std::byte> sorted;
  for (size_t i = 0; i < fields.size(); ++i) {
    std::byte* out = request->fields[i];
    if (out == nullptr || data[first_column[i]] == out) continue;
    const std::byte* parts[2] = {data[first_column[i]], nullptr};
    if (first_column[i] + 1 < data.size()) parts[1] = data[first_column[i] + 1];
    const bool permute = fields[i].per_item && !request->key.order.empty();
    if (permute) sorted.resize(fields[i].bytes());
    Unpack(fields[i], parts, permute ? sorted.data() : out);
    if (!permute) continue;
    const size_t one = sorted.size() / request->key.order.size();
    for (size_t item = 0; item < request->key.order.size(); ++item) {
      std::memcpy(out + item * one, sorted.data() + request->key.order[item] * one, one);
    }
  }
}

void Reader::Inside::Read(std::span<Request> requests) {
  const TimePoint start = Now();
  const std::vector<FieldSpec>& fields = folder.description().fields;
  std::vector<Piece> pieces;
  std::vector<size_t> first_piece(requests.size() + 1, 0);
  BlockMemory slab;
  size_t room = 0;
  std::vector<BlockRead> reads;
  {
    const std::lock_guard<std::mutex> hold(mutex);
    for (size_t r = 0; r < requests.size(); ++r) {
      first_piece[r] = pieces.size();
      uint64_t row = 0;
      const auto unit = Locate(&requests[r], &row);
      if (!unit) continue;
      for (size_t i = 0; i < fields.size(); ++i) {
        if (requests[r].fields[i] == nullptr) continue;
        const size_t end = i + 1 < fields.size() ? first_column[i + 1] : column_count;
        for (size_t column = first_column[i]; column < end; ++column) {
          const uint64_t offset = unit->offset(row, column), bytes = columns[column].bytes;
          const uint64_t grain = unit->grain(), skip = offset % grain;
          const uint64_t whole = (skip + bytes + grain - 1) / grain * grain;
          // Rows that may be read as they are go straight to where they are wanted.
          const bool in_place = fields[i].stored == Storage::kSame &&
                                (!fields[i].per_item || requests[r].key.order.empty()) && skip == 0 && whole == bytes &&
                                reinterpret_cast<uintptr_t>(requests[r].fields[i]) % grain == 0;
          BlockRead read{unit->fd(), offset - skip, whole, skip + bytes, nullptr, 0};
          if (in_place) {
            read.to = requests[r].fields[i];
          } else {
            room += WholeBlocks(whole);
          }
          reads.push_back(read);
          pieces.push_back({r, column, unit, row, static_cast<size_t>(skip), nullptr});
        }
      }
      requests[r].outcome = Outcome::kHit;
    }
    first_piece[requests.size()] = pieces.size();
    if (!slabs.empty()) {
      slab = std::move(slabs.back());
      slabs.pop_back();
    }
  }
  std::byte* at = room == 0 ? nullptr : slab.Grow(std::max(room, kLargePage));
  for (size_t i = 0; i < reads.size(); ++i) {
    if (reads[i].to == nullptr) {
      reads[i].to = at;
      at += WholeBlocks(reads[i].bytes);
    }
    pieces[i].data = reads[i].to + pieces[i].skip;
  }

  // The last piece of a record to arrive delivers it.
  std::vector<std::atomic<int>> waiting(requests.size()), outcome(requests.size());
  for (size_t r = 0; r < requests.size(); ++r) {
    waiting[r] = static_cast<int>(first_piece[r + 1] - first_piece[r]);
    outcome[r] = static_cast<int>(requests[r].outcome);
  }
  std::mutex whys;
  const auto done = [&](size_t i) {
    const Piece& piece = pieces[i];
    Request& request = requests[piece.request];
    const auto fail = [&](Outcome what, std::string why) {
      const std::lock_guard<std::mutex> hold(whys);
      outcome[piece.request] = static_cast<int>(what);
      request.why = std::move(why);
    };
    if (reads[i].error != 0) {
      fail(reads[i].error == ENODATA ? Outcome::kDamaged : Outcome::kUnreadable,
           fmt::format("'{}': {}", piece.unit->path(), ErrnoText(reads[i].error)));
    } else if (RowSum(request.key.key, piece.data, columns[piece.column].bytes) !=
               piece.unit->sum(piece.row, piece.column)) {
      fail(Outcome::kDamaged,
           fmt::format("'{}': row {} of '{}' is damaged", piece.unit->path(), piece.row, columns[piece.column].name));
    }
    if (waiting[piece.request].fetch_sub(1) != 1) return;
    if (outcome[piece.request] != static_cast<int>(Outcome::kHit)) return;
    std::vector<const std::byte*> data(column_count, nullptr);
    for (size_t p = first_piece[piece.request]; p < first_piece[piece.request + 1]; ++p) {
      data[pieces[p].column] = pieces[p].data;
    }
    Deliver(&request, data);
  };
  if (reads.size() == 1) {
    reads[0].error = ReadBlocks(&reads[0]);
    done(0);
  } else if (!reads.empty()) {
    blocks->Read(reads, done);
  }

  const std::lock_guard<std::mutex> hold(mutex);
  slabs.push_back(std::move(slab));
  for (size_t r = 0; r < requests.size(); ++r) {
    requests[r].outcome = static_cast<Outcome>(outcome[r].load());
    switch (requests[r].outcome) {
      case Outcome::kHit:
        ++stats.hits;
        break;
      case Outcome::kMiss:
        ++stats.misses;
        break;
      case Outcome::kDamaged:
        ++stats.damaged;
        break;
      case Outcome::kUnreadable:
        ++stats.unreadable;
        break;
    }
  }
  for (const BlockRead& read : reads) stats.bytes += read.needed;
  stats.seconds += SecondsSince(start);
}

void Reader::Inside::Reopen(std::span<const Request> requests) {
  const std::lock_guard<std::mutex> hold(mutex);
  for (const Request& request : requests) {
    for (const KeyIndex::Entry& entry : index.Find(request.key.key)) {
      const auto found = open.find(entry.unit);
      if (found == open.end()) continue;
      recent.erase(found->second);
      open.erase(found);
    }
  }
}

Reader::Reader(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Reader::~Reader() = default;

Result<std::unique_ptr<Reader>> Reader::Open(const Folder& folder, ReaderOptions options) {
  std::unique_ptr<Reader> reader(new Reader(std::make_unique<Inside>(folder, options)));
  LOCKSTEP_RETURN_IF_ERROR(reader->Refresh());
  return reader;
}

const Folder& Reader::folder() const { return inside_->folder; }

uint64_t Reader::records() const {
  const std::lock_guard<std::mutex> hold(inside_->mutex);
  return inside_->index.records();
}

std::vector<std::string> Reader::warnings() const {
  const std::lock_guard<std::mutex> hold(inside_->mutex);
  return inside_->index.warnings();
}

bool Reader::Has(const Digest& key) const {
  const std::lock_guard<std::mutex> hold(inside_->mutex);
  Request request{.key = {key, {}}, .fields = {}};
  uint64_t row = 0;
  return inside_->Locate(&request, &row) != nullptr;
}

Status Reader::Refresh() { return inside_->Refresh(); }

Status Reader::SaveIndex() {
  const std::lock_guard<std::mutex> hold(inside_->mutex);
  return inside_->index.unsaved() == 0 ? Status::Ok() : inside_->index.Save(inside_->folder);
}

void Reader::Read(std::span<Request> requests) {
  inside_->Read(requests);
  for (Request& request : requests) {
    if (request.outcome != Outcome::kUnreadable) continue;
    inside_->Reopen({&request, 1});
    request.why.clear();
    inside_->Read({&request, 1});
  }
}

ReaderStats Reader::stats() const {
  const std::lock_guard<std::mutex> hold(inside_->mutex);
  return inside_->stats;
}

std::string Reader::Describe() const {
  const std::lock_guard<std::mutex> hold(inside_->mutex);
  return fmt::format("{}, {}, depth {}", inside_->blocks->name(),
                     inside_->options.direct && inside_->direct ? "O_DIRECT" : "page cache", inside_->options.depth);
}

}  // namespace lockstep::cache
