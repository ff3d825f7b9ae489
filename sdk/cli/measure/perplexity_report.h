// SPDX-License-Identifier: Apache-2.0
// baton eval --perplexity: measures how well a model predicts a text, and prints it.
#pragma once

#include <string>

#include "sdk/cli/console/options.h"

namespace baton::cli {

struct PerplexityArguments {
  std::string file;  // the text; empty: perplexity is not asked for
  std::string dtype = "bf16";
  std::string activations = "f32";
  int context = 512;
  std::int64_t chunks = 0;  // 0: all

  /// Returns --perplexity; the other options need it.
  CLI::Option* add_to(CLI::App& verb);
};

/// Returns the exit code. Throws Failure for an option that is out of range and a text that is too short.
int report_perplexity(const PerplexityArguments& arguments, const EngineArguments& engine, const std::string& model,
                      bool json, bool quiet);

}  // namespace baton::cli
