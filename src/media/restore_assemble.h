// Restored windows to files, and files to clips. A window's own frames are stored as they will be (PNG for a folder,
// else raw), what it gives for shared frames as float32; when all windows that hold a frame are there, whoever computed
// them, the assembler takes their mean and writes the frame. A clip has one assembler, on a thread of its own beside
// computing. No value depends on which rank computed what.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "media/restore.h"
#include "media/restore_work.h"

namespace lockstep::media {

// A clip to restore.
struct RestoreTask {
  const FoundClip* clip = nullptr;
  size_t number = 0;  // of the clip in the work folder
  std::vector<FrameWindow> windows;
  MediaShape out;     // of what is written; its count is certain
  bool bytes = true;  // frames are stored as bytes [h, w, 3], else as float32 [3, h, w]
};

// [n, 3, h, w] on any device -> bytes [n, h, w, 3].
at::Tensor ToPictures(const at::Tensor& frames);

// One restored window on the CPU.
struct StoredWindow {
  size_t window = 0;
  at::Tensor own;     // OwnFrames: [n, h, w, 3] bytes, or [n, 3, h, w] float32
  at::Tensor before;  // shared frames before and after them: [n, 3, h, w] float32
  at::Tensor after;
};
// Its frames, then its mark.
Status StoreWindow(const WorkFiles& files, const RestoreTask& task, const StoredWindow& window, size_t threads);

struct AssembleOptions {
  OutputOptions out;
  nlohmann::json settings;                  // for the record
  const std::atomic<bool>* stop = nullptr;  // ends the waiting
};
// Waits for the windows of the clip, writes it and publishes it. `written` (may be null): what the writer says of it;
// `notes`: likewise.
Status AssembleClip(const WorkFiles& files, const RestoreTask& task, const AssembleOptions& options,
                    std::string* written, std::vector<std::string>* notes);

}  // namespace lockstep::media
