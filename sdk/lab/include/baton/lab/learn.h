// SPDX-License-Identifier: Apache-2.0
// Learning corrections: how a placeholder of a prompt changes the KV of the answers that are handed over to it. Method
// rectify corrects reused KV accordingly (docs/methods.md).
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

namespace baton::inline v1::lab {

/// What is learned from, and how much it may cost.
struct LearnOptions {
  std::string model{};          // a folder or a bare name, in place of the workflow's default model
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  int threads = 0;              // CPU threads; 0: one per core
  int rank = 256;               // maximum rank of each correction; its cost and size grow with the rank
  int jobs = 8;                 // concurrent runs
  std::uint64_t seed = 0;
  /// The inputs of each run of the workflow. More runs give better corrections; start with 100. The last sixth of the
  /// runs, at most 48, is held out: the effect of the corrections is measured on them.
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
  std::int64_t tokens = 0;           // tokens that it was learned from
  int rank = 0;
  std::int64_t bytes = 0;  // size in memory and on disk
  /// Fraction of the squared change of keys and values that is left, on the held-out eighth of the answers.
  double left = 1.0;
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

/// The corrections that were learned, not yet written anywhere.
struct LearnResult {
  std::vector<LearnedCorrection> corrections;  // in the order in which their placeholders were first seen
  int checked_runs = 0;                        // held out
  int failed_runs = 0;
  std::string first_error;  // of the failed runs
  /// Writes the corrections next to each model, where runs find them, and replaces earlier ones of the same
  /// placeholders; if the model's folder is not writable, into the user's cache. Returns the files; throws
  /// ResourceError when neither can be written.
  std::vector<std::filesystem::path> save() const;

  struct Impl;
  std::shared_ptr<const Impl> impl;  // the library's own
};

/// Runs the workflow over the inputs with every prompt computed in full, and learns from its hand-overs. Writes
/// nothing. Empty when it was stopped. Throws ResourceError, and InputError for invalid options.
std::optional<LearnResult> learn_corrections(const Workflow& workflow, const LearnOptions& options);

}  // namespace baton::inline v1::lab
