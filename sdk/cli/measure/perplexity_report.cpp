// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/perplexity_report.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include <baton/perplexity.h>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/interrupt.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

std::string text_of(const PerplexityArguments& arguments, const PerplexityResult& found) {
  std::string out = fmt::format("perplexity {:.4f} +/- {:.5f}\n", found.perplexity, found.error);
  out += fmt::format("{} of {} tokens scored, in {} chunks of {}{}; {}{} on {}\n", grouped(found.scored),
                     grouped(found.tokens), grouped(found.chunks), arguments.context,
                     found.begins_with_bos ? ", each behind a BOS" : "", arguments.dtype,
                     arguments.activations == "bf16" ? " with bf16 activations" : "", found.device);
  return out;
}

std::string json_of(const PerplexityArguments& arguments, const std::string& model, const PerplexityResult& found) {
  const OrderedJson all = {{"schema", 1},
                           {"model", model},
                           {"text", arguments.file},
                           {"device", found.device},
                           {"dtype", arguments.dtype},
                           {"activations", arguments.activations},
                           {"context", arguments.context},
                           {"chunks", found.chunks},
                           {"tokens", found.tokens},
                           {"scored", found.scored},
                           {"bos", found.begins_with_bos},
                           {"nll", found.nll},
                           {"perplexity", found.perplexity},
                           {"error", found.error}};
  return all.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

/// One line, drawn anew, in a terminal; otherwise a line now and then.
class Progress {
 public:
  void show(std::int64_t done, std::int64_t chunks, double perplexity) {
    const auto now = Clock::now();
    if (!can_redraw() && now - last_ < std::chrono::seconds(10) && done < chunks) return;
    last_ = now;
    const double ms = std::chrono::duration<double, std::milli>(now - start_).count() / static_cast<double>(done);
    std::string line = fmt::format("{} of {} chunks, perplexity {:.4f}", done, chunks, perplexity);
    if (done < chunks) line += fmt::format(", {} left", duration(ms * static_cast<double>(chunks - done)));
    note(can_redraw() ? "\r\x1b[K" + head(line, terminal_size().columns - 1) : line + "\n");
  }

 private:
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace

CLI::Option* PerplexityArguments::add_to(CLI::App& verb) {
  auto* asked = verb.add_option("--perplexity", file,
                                "Measure how well --model predicts this text, as llama-perplexity does, in place of a "
                                "workflow")
                    ->type_name("FILE.txt");
  verb.add_option("--context", context, "With --perplexity: tokens of a chunk, of which the second half is scored")
      ->type_name("N")
      ->check(CLI::Range(4, 1 << 24))
      ->needs(asked)
      ->capture_default_str();
  verb.add_option("--chunks", chunks, "With --perplexity: only the first N chunks of the text")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->needs(asked);
  verb.add_option("--dtype", dtype, "With --perplexity: data type of KV and of weights that are not quantised")
      ->type_name("bf16|f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->needs(asked)
      ->capture_default_str();
  verb.add_option("--activations", activations,
                  "With --perplexity: type of the inputs of products with bf16 weights, on the CPU")
      ->type_name("f32|bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->needs(asked)
      ->capture_default_str();
  return asked;
}

int report_perplexity(const PerplexityArguments& arguments, const EngineArguments& engine, const std::string& model,
                      bool json, bool quiet) {
  if (model.empty()) throw Failure(kUsage, "--perplexity: expected a model, given with --model");
  PerplexityOptions options;
  options.model = model;
  options.text = read_file(arguments.file);
  if (!options.text.empty() && options.text.back() == '\n') options.text.pop_back();  // as llama-perplexity does
  options.device = engine.device;
  options.threads = engine.threads;
  options.dtype = arguments.dtype;
  options.activations = arguments.activations;
  options.context = arguments.context;
  options.chunks = arguments.chunks;
  options.on_load = engine.options(model, quiet).on_load;
  options.stop = interrupted();
  Progress progress;
  if (!quiet) {
    options.on_chunk = [&](std::int64_t done, std::int64_t chunks, double so_far) {
      progress.show(done, chunks, so_far);
    };
  }
  std::optional<PerplexityResult> found;
  try {
    found = measure_perplexity(options);
  } catch (const InputError& error) {
    const std::string what = error.what();
    const bool of_text = what.rfind("text: ", 0) == 0;
    throw Failure(kUsage, of_text ? fmt::format("--perplexity {}: {}", arguments.file, what.substr(6)) : "--" + what);
  }
  if (!quiet && can_redraw()) note("\r\x1b[K");
  if (found) result(json ? json_of(arguments, model, *found) : text_of(arguments, *found));
  return interrupted().stop_requested() ? kInterrupted : kOk;
}

}  // namespace baton::cli
