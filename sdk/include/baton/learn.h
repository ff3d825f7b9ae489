// SPDX-License-Identifier: Apache-2.0
// Learning corrections: what a place in a prompt does to the KV of the answers that are handed over to it. Method
// rectify then corrects reused KV by it (docs/methods.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <baton/workflow.h>

namespace baton::inline v1 {

struct LearnOptions {
  std::string model{};          // a folder or a bare name, in place of the workflow's default model
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  int threads = 0;              // CPU threads; 0: one per core
  int rank = 256;               // of each correction, at most: what it costs and how large it is grow with it
  int jobs = 8;                 // runs at the same time
  std::uint64_t seed = 0;
  /// One run of the workflow each. Corrections are worth the more, the more runs there are; 100 is a beginning. One in
  /// six, the last of them, at most 48, is not learned from: with them it is measured what corrections are worth.
  std::vector<std::map<std::string, std::string>> inputs{};
  std::function<void(const std::string& model, double share)> on_load{};  // as in EngineOptions
  std::function<void(double share)> on_progress{};                        // 0 to 1, on the calling thread
  std::stop_token stop{};
};

/// A placeholder of one prompt.
struct LearnedCorrection {
  std::string model;                 // folder
  std::vector<std::string> readers;  // the turns whose prompt it is: "inspector"
  std::string slot;                  // "agent_analyst_current"
  int texts = 0;                     // answers that were seen there
  std::int64_t tokens = 0;           // that it was learned from
  int rank = 0;
  std::int64_t bytes = 0;  // that it takes in memory and on disk
  double left = 1.0;       // of the squared change of keys and values, on one answer in eight not learned from
  /// Over the runs that were not learned from, forced to the answers of full prefill: KL divergence of an answer's
  /// distributions from full prefill in nats, as the geometric mean over the readers' answers (a few answers carry most
  /// of an ordinary mean), and how many of them hold a token that is no longer the likeliest; of method rectify without
  /// corrections, and with all that were learned. A correction that does not lower the one, or raises the other, is not
  /// kept.
  double kl_plain = 0.0;
  double kl_corrected = 0.0;
  int changed_plain = 0;
  int changed_corrected = 0;
  bool kept = false;
};

struct LearnResult {
  std::vector<LearnedCorrection> corrections;  // in the order in which their places were first seen
  int checked_runs = 0;                        // not learned from
  int failed_runs = 0;
  std::string first_error;  // of those
  /// Adds them to what is beside each model, in place of those of the same places, where runs find them; where that
  /// cannot be written, in the user's cache. Returns the files; throws ResourceError when neither can be written.
  std::vector<std::filesystem::path> save() const;

  struct Impl;
  std::shared_ptr<const Impl> impl;  // the library's own
};

/// Runs the workflow over the inputs with every prompt computed in full, and learns from its hand-overs. Writes
/// nothing. Empty when it was stopped. Throws ResourceError, and InputError for options that are not sound.
std::optional<LearnResult> learn_corrections(const Workflow& workflow, const LearnOptions& options);

}  // namespace baton::inline v1
