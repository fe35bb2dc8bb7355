// Clips out of rows of pictures (rows.h): each row is a video of its own.
#include <fmt/format.h>

#include <optional>

#include "base/text.h"
#include "data/clip_transform.h"
#include "data/pace.h"
#include "data/rows.h"
#include "data/sources.h"
#include "data/stages.h"
#include "data/text_listing.h"

namespace lockstep::data {
namespace {

// How pictures lie in a row.
struct RowLayout {
  uint64_t frames = 0;  // 0: the row is one picture without that dimension
  int height = 0, width = 0;
  bool planes = false;  // [3, H, W] rather than [H, W, 3]
};

std::optional<RowLayout> LayoutOf(const Field& row) {
  std::vector<int64_t> shape = row.shape;
  RowLayout layout;
  if (shape.size() == 4) {
    layout.frames = static_cast<uint64_t>(shape[0]);
    shape.erase(shape.begin());
    if (layout.frames == 0) return std::nullopt;
  }
  constexpr int64_t kMost = 1 << 16;
  if (row.type != ElementType::kU8 || shape.size() != 3) return std::nullopt;
  layout.planes = shape[2] != 3;
  if (layout.planes && shape[0] != 3) return std::nullopt;
  const int64_t height = shape[layout.planes ? 1 : 0], width = shape[layout.planes ? 2 : 1];
  if (height < 1 || width < 1 || height > kMost || width > kMost) return std::nullopt;
  layout.height = static_cast<int>(height), layout.width = static_cast<int>(width);
  return layout;
}

class RowClips final : public Source {
 public:
  RowClips(const SourceConfig& config, std::unique_ptr<Rows> rows, RowLayout layout, std::string digest)
      : config_(config),
        rows_(std::move(rows)),
        layout_(layout),
        digest_(std::move(digest)),
        fields_{{"frames", ElementType::kU8, {config.frames, 3, config.height, config.width}}} {}

  const std::vector<Field>& fields() const override { return fields_; }
  uint64_t size() const override { return rows_->size() * config_.clips_per_video; }
  std::string Name(uint64_t index) const override {
    const std::string row = fmt::format("{} row {}", rows_->path(), index / config_.clips_per_video);
    return config_.clips_per_video == 1 ? row : fmt::format("{} clip {}", row, index % config_.clips_per_video);
  }
  std::string Origin(uint64_t index) const override { return fmt::format("row {}", index / config_.clips_per_video); }
  Status Read(const Draw& draw, std::span<std::byte* const> out) const override;
  std::string Describe() const override {
    return fmt::format("{}: {} rows of {} in {}", config_.kind, rows_->size(), config_.field, config_.path);
  }
  std::string Digest() const override { return digest_; }

 private:
  SourceConfig config_;
  std::unique_ptr<Rows> rows_;
  RowLayout layout_;
  std::string digest_;
  std::vector<Field> fields_;
};

Status RowClips::Read(const Draw& draw, std::span<std::byte* const> out) const {
  const uint64_t row = draw.index / config_.clips_per_video;
  const Pace pace = DrawPace(draw, config_.frames, config_.min_stride, config_.max_stride,
                             draw.index % config_.clips_per_video, config_.clips_per_video);
  const std::optional<Placed> placed = Place(pace, std::max<uint64_t>(layout_.frames, 1));
  ClipTransform transform(DrawCrop(draw, layout_.width, layout_.height, config_.width, config_.height),
                          DrawFlip(draw, config_.flip), DrawColour(draw, config_.colour), layout_.width, layout_.height,
                          config_.width, config_.height, ResizeByName(config_.resize));
  const size_t pixels = static_cast<size_t>(layout_.width) * layout_.height;
  std::vector<uint8_t> picture(pixels * 3), turned(layout_.planes ? pixels * 3 : 0);
  auto* to = reinterpret_cast<uint8_t*>(out[0]);
  for (int i = 0; i < pace.frames; ++i, to += fields_[0].bytes() / config_.frames) {
    if (draw.cancelled != nullptr && *draw.cancelled) return Status(Code::kInterrupted, "reading was stopped");
    std::optional<uint64_t> slice;
    if (layout_.frames > 0) slice = placed->start + static_cast<uint64_t>(i) * placed->stride;
    {
      const StageMark mark(LoadStage::kRead);
      LOCKSTEP_RETURN_IF_ERROR(rows_->Read(row, slice, picture.data()));
    }
    for (size_t p = 0; layout_.planes && p < pixels; ++p) {
      for (size_t c = 0; c < 3; ++c) turned[p * 3 + c] = picture[c * pixels + p];
    }
    transform.Apply(layout_.planes ? turned.data() : picture.data(), static_cast<size_t>(layout_.width) * 3, to);
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Source>> OpenRowClips(const SourceConfig& config) {
  Result<std::vector<TextFile>> files = ListRowFiles(config.kind, config.path);
  if (!files.ok()) return files.status();
  Result<std::unique_ptr<Rows>> rows = OpenRows(config.kind, config.path, config.field);
  if (!rows.ok()) return rows.status();
  const std::optional<RowLayout> layout = LayoutOf((*rows)->field());
  if (!layout) {
    return Status(Code::kUsage,
                  fmt::format("rows of '{}' in '{}' are {}; expected U8 pictures", config.field, config.path,
                              DescribeField((*rows)->field())),
                  "rows may be [T, H, W, 3], [T, 3, H, W], [H, W, 3] or [3, H, W], RGB");
  }
  const uint64_t frames = std::max<uint64_t>(layout->frames, 1);
  if (frames < static_cast<uint64_t>(config.frames)) {
    return Status(Code::kUsage, fmt::format("clips need {} frames, but rows of '{}' in '{}' have {}", config.frames,
                                            config.field, config.path, frames));
  }
  const std::string digest = DigestOfFiles(*files, fmt::format("{}\n{}", config.field, config.clips_per_video));
  return std::unique_ptr<Source>(std::make_unique<RowClips>(config, std::move(*rows), *layout, digest));
}

}  // namespace lockstep::data
