#include "media/clips.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/text.h"
#include "data/clip_transform.h"
#include "data/file_source.h"
#include "data/listing.h"
#include "media/files.h"

namespace lockstep::media {
namespace {

constexpr int64_t kSkip = 16;  // frames read at once on the way to a clip's start

struct ClipPart {
  std::string name, path;
  int64_t tensor = 0;  // which clip of a file with several
  int64_t part = 0;    // which of the clips of a video
};

class FileReader final : public ClipReader {
 public:
  FileReader(std::unique_ptr<MediaInput> input, const ClipPart& clip, const ClipChoice& choice)
      : input_(std::move(input)), clip_(clip), choice_(choice), left_(choice.frames) {}

  // Goes to the start of the part.
  Status Start(int64_t total) {
    int64_t skip = 0;
    if (choice_.frames > 0) {
      const int64_t starts = std::max<int64_t>(0, total - choice_.frames);
      skip = choice_.clips_per_video <= 1 ? 0 : starts * clip_.part / (choice_.clips_per_video - 1);
    }
    if (input_->shape().count_certain) {
      const auto rest = static_cast<int64_t>(input_->shape().count) - skip;
      frames_ = choice_.frames > 0 ? std::min(choice_.frames, rest) : rest;
    }
    while (skip > 0) {
      Result<Piece> piece = input_->Read(std::min(kSkip, skip));
      if (!piece.ok()) return piece.status();
      if (piece->count() == 0) return Status::Ok();
      skip -= piece->count();
    }
    return Status::Ok();
  }

  std::optional<int64_t> frames() const override { return frames_; }

  Result<at::Tensor> Next(int64_t count) override {
    if (choice_.frames > 0) count = std::min(count, left_);
    if (count == 0) return at::Tensor();
    Result<Piece> piece = input_->Read(count);
    if (!piece.ok()) return piece.status();
    if (piece->count() == 0) return at::Tensor();
    left_ -= piece->count();
    at::Tensor frames = piece->data[clip_.tensor];
    if (frames.is_floating_point()) frames = frames.to(at::kFloat).clamp(0, 1).mul(255).round().to(at::kByte);
    return choice_.height > 0 ? Resized(frames) : frames;
  }

 private:
  at::Tensor Resized(const at::Tensor& frames) {
    const auto height = static_cast<int>(frames.size(2)), width = static_cast<int>(frames.size(3));
    if (!transform_)
      transform_.emplace(data::Draw{}, width, height, static_cast<int>(choice_.width),
                         static_cast<int>(choice_.height));
    at::Tensor out = at::empty({frames.size(0), 3, choice_.height, choice_.width}, at::kByte);
    const at::Tensor rows = frames.permute({0, 2, 3, 1}).contiguous();
    for (int64_t t = 0; t < frames.size(0); ++t) {
      transform_->Apply(rows[t].data_ptr<uint8_t>(), static_cast<size_t>(width) * 3, out[t].data_ptr<uint8_t>());
    }
    return out;
  }

  std::unique_ptr<MediaInput> input_;
  ClipPart clip_;
  ClipChoice choice_;
  int64_t left_;
  std::optional<int64_t> frames_;
  std::optional<data::ClipTransform> transform_;
};

class FileClips final : public ClipSet {
 public:
  FileClips(std::vector<ClipPart> parts, const ClipChoice& choice, std::string note)
      : clips_(std::move(parts)), choice_(choice), note_(std::move(note)) {}

  uint64_t size() const override { return clips_.size(); }
  std::string Name(uint64_t index) const override { return clips_[index].name; }
  std::string Describe() const override {
    const std::string size =
        choice_.height > 0 ? fmt::format("{}x{}", choice_.width, choice_.height) : "their own size";
    const std::string frames =
        choice_.frames > 0 ? "up to " + lockstep::Count(static_cast<int64_t>(choice_.frames), "frame") : "all frames";
    return fmt::format("{} clip{}, {} in {}{}", size_t{clips_.size()}, clips_.size() == 1 ? "" : "s", frames, size,
                       note_.empty() ? "" : "; " + note_);
  }

  Result<std::unique_ptr<ClipReader>> Open(uint64_t index) const override {
    const ClipPart& clip = clips_[index];
    Result<std::unique_ptr<MediaInput>> input = OpenFrames(clip.path, {});
    if (!input.ok()) return input.status();
    auto total = static_cast<int64_t>((*input)->shape().count);
    if (clip.part > 0 && !(*input)->shape().count_certain) {
      // What a container promises may be wrong, and a clip that begins behind the end would be empty.
      Result<int64_t> counted = Count(**input);
      if (!counted.ok()) return counted.status();
      total = *counted;
      input = OpenFrames(clip.path, {});
      if (!input.ok()) return input.status();
    }
    auto reader = std::make_unique<FileReader>(std::move(*input), clip, choice_);
    LOCKSTEP_RETURN_IF_ERROR(reader->Start(total));
    return std::unique_ptr<ClipReader>(std::move(reader));
  }

 private:
  static Result<int64_t> Count(MediaInput& input) {
    for (int64_t total = 0;;) {
      Result<Piece> piece = input.Read(kSkip);
      if (!piece.ok()) return piece.status();
      if (piece->count() == 0) return total;
      total += piece->count();
    }
  }

  std::vector<ClipPart> clips_;
  ClipChoice choice_;
  std::string note_;
};

class SourceReader final : public ClipReader {
 public:
  explicit SourceReader(at::Tensor frames) : frames_(std::move(frames)) {}
  std::optional<int64_t> frames() const override { return frames_.size(0); }
  Result<at::Tensor> Next(int64_t count) override {
    const int64_t some = std::min(count, frames_.size(0) - at_);
    if (some == 0) return at::Tensor();
    at_ += some;
    return frames_.narrow(0, at_ - some, some);
  }

 private:
  at::Tensor frames_;
  int64_t at_ = 0;
};

class FromSource final : public ClipSet {
 public:
  explicit FromSource(std::shared_ptr<const data::Source> source) : source_(std::move(source)) {}
  uint64_t size() const override { return source_->size(); }
  std::string Name(uint64_t index) const override { return source_->Name(index); }
  std::string Describe() const override { return source_->Describe(); }
  Result<std::unique_ptr<ClipReader>> Open(uint64_t index) const override {
    at::Tensor frames;
    std::vector<at::Tensor> fields;  // kept until the sample is read
    std::vector<std::byte*> out;
    for (const data::Field& field : source_->fields()) {
      fields.push_back(at::empty({static_cast<int64_t>(field.bytes())}, at::kByte));
      out.push_back(static_cast<std::byte*>(fields.back().data_ptr()));
      if (field.name == "frames" && field.type == data::ElementType::kU8) frames = fields.back().view(field.shape);
    }
    if (!frames.defined()) return Status(Code::kUsage, "the data have no field 'frames' of bytes");
    LOCKSTEP_RETURN_IF_ERROR(source_->Read({.index = index}, out));
    return std::unique_ptr<ClipReader>(std::make_unique<SourceReader>(frames));
  }

 private:
  std::shared_ptr<const data::Source> source_;
};

// What is to be found in a folder or list, by the rules of training data.
Status AddInventory(const data::SourceConfig& config, std::vector<ClipPart>* parts, std::string* notes) {
  Result<data::Inventory> inventory = data::TakeInventory(config);
  if (!inventory.ok()) return inventory.status();
  for (const data::Video& video : inventory->videos) {
    const bool one = video.pictures.size() == 1 && config.kind == "annotations";
    parts->push_back({video.origin, one ? data::JoinPath(video.path, video.pictures[0].name) : video.path});
  }
  if (!inventory->notes.empty()) *notes += (notes->empty() ? "" : "; ") + inventory->notes;
  return Status::Ok();
}

Status AddFolder(const std::string& path, std::vector<ClipPart>* parts, std::string* notes) {
  Result<std::vector<data::Folder>> folders = data::ListFolders(path);
  if (!folders.ok()) return folders.status();
  bool videos = false, frames = false;
  for (const data::Folder& folder : *folders) {
    videos = videos || std::ranges::any_of(folder.files, data::IsVideoName);
    frames = frames || std::ranges::any_of(folder.files, data::IsImageName);
  }
  if (videos || !frames) LOCKSTEP_RETURN_IF_ERROR(AddInventory({.kind = "videos", .path = path}, parts, notes));
  if (frames) LOCKSTEP_RETURN_IF_ERROR(AddInventory({.kind = "frames", .path = path}, parts, notes));
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<ClipSet>> FindClips(const ClipChoice& choice) {
  std::vector<ClipPart> found;
  std::string notes;
  if (!choice.annotations.empty()) {
    if (choice.data.size() > 1) {
      return Status(Code::kUsage,
                    fmt::format("--annotations lists files below one folder, but --data names {}", choice.data.size()));
    }
    data::SourceConfig config{.kind = "annotations", .path = choice.data.empty() ? "" : choice.data[0]};
    config.annotations = choice.annotations;
    LOCKSTEP_RETURN_IF_ERROR(AddInventory(config, &found, &notes));
  } else {
    for (const std::string& path : choice.data) {
      struct stat info{};
      if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
        LOCKSTEP_RETURN_IF_ERROR(AddFolder(path, &found, &notes));
      } else {
        found.push_back({path, path});
      }
    }
  }
  std::vector<ClipPart> parts;
  for (const ClipPart& clip : found) {
    int64_t tensors = 1;
    if (IsTensorName(clip.path)) {
      Result<std::unique_ptr<MediaInput>> input = OpenFrames(clip.path, {});
      if (input.ok()) tensors = (*input)->shape().clips;  // else it is a clip that cannot be read
    }
    for (int64_t n = 0; n < tensors; ++n) {
      for (int64_t part = 0; part < choice.clips_per_video; ++part) {
        ClipPart one = clip;
        one.tensor = n;
        one.part = part;
        if (tensors > 1) one.name += fmt::format(" [{}]", n);
        if (choice.clips_per_video > 1) one.name += fmt::format(" part {}/{}", part + 1, choice.clips_per_video);
        parts.push_back(std::move(one));
      }
    }
  }
  return std::unique_ptr<ClipSet>(std::make_unique<FileClips>(std::move(parts), choice, notes));
}

std::unique_ptr<ClipSet> SourceClips(std::shared_ptr<const data::Source> source) {
  return std::make_unique<FromSource>(std::move(source));
}

}  // namespace lockstep::media
