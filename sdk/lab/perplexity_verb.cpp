// SPDX-License-Identifier: Apache-2.0
// baton-lab perplexity: measures how well a model predicts a text, and prints it.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include <baton/lab/perplexity.h>

#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/lab/verbs.h"

namespace baton::inline v1::lab {
using namespace cli;
namespace {

using OrderedJson = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct PerplexityArguments {
  std::string file;  // the text
  std::string model;
  EngineArguments engine;
  std::string dtype = "bf16";
  std::string activations = "f32";
  int context = 512;
  std::int64_t chunks = 0;  // 0: all
  bool json = false;
  bool quiet = false;
};

std::string text_of(const PerplexityArguments& arguments, const PerplexityResult& found) {
  std::string out = fmt::format("perplexity {:.4f} +/- {:.5f}\n", found.perplexity, found.error);
  out += fmt::format("{} of {} tokens scored, in {} chunks of {}{}; {}{} on {}\n", grouped(found.scored),
                     grouped(found.tokens), grouped(found.chunks), arguments.context,
                     found.begins_with_bos ? ", each behind a BOS" : "", arguments.dtype,
                     arguments.activations == "bf16" ? " with bf16 activations" : "", found.device);
  return out;
}

std::string json_of(const PerplexityArguments& arguments, const PerplexityResult& found) {
  const OrderedJson all = {{"schema", 1},
                           {"model", arguments.model},
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

int perplexity(const PerplexityArguments& arguments) {
  PerplexityOptions options;
  options.model = arguments.model;
  options.text = read_file(arguments.file);
  if (!options.text.empty() && options.text.back() == '\n') options.text.pop_back();  // as llama-perplexity does
  options.device = arguments.engine.device;
  options.threads = arguments.engine.threads;
  options.dtype = arguments.dtype;
  options.activations = arguments.activations;
  options.context = arguments.context;
  options.chunks = arguments.chunks;
  options.on_load = arguments.engine.options(arguments.model, arguments.quiet).on_load;
  options.stop = interrupted();
  Progress progress;
  if (!arguments.quiet) {
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
    throw Failure(kUsage, of_text ? fmt::format("{}: {}", arguments.file, what.substr(6)) : "--" + what);
  }
  if (!arguments.quiet && can_redraw()) note("\r\x1b[K");
  if (found) result(arguments.json ? json_of(arguments, *found) : text_of(arguments, *found));
  return interrupted().stop_requested() ? kInterrupted : kOk;
}

}  // namespace

void add_perplexity(CommandLine& line) {
  Verb* verb = line.add_verb("perplexity", "Measure how well a model predicts a text, as llama-perplexity does");
  auto arguments = std::make_shared<PerplexityArguments>();
  verb->add_option("text", arguments->file, "The text")->required()->type_name("FILE.txt");
  verb->add_option("--model", arguments->model, "Model folder, .gguf file or name")->required()->type_name("PATH");
  arguments->engine.add_to(*verb);
  verb->add_option("--context", arguments->context, "Tokens of a chunk, of which the second half is scored")
      ->type_name("N")
      ->range(4, 1 << 24)
      ->capture_default_str();
  verb->add_option("--chunks", arguments->chunks, "Only the first N chunks of the text")
      ->type_name("N")
      ->range(std::int64_t{1}, std::int64_t{1} << 40);
  verb->add_option("--dtype", arguments->dtype, "Data type of KV and of weights that are not quantised")
      ->type_name("bf16|f32")
      ->one_of({"bf16", "f32"})
      ->capture_default_str();
  verb->add_option("--activations", arguments->activations,
                   "Type of the inputs of products with bf16 weights, on the CPU")
      ->type_name("f32|bf16")
      ->one_of({"f32", "bf16"})
      ->capture_default_str();
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  verb->add_flag("-q,--quiet", arguments->quiet, "Show no progress");
  verb->footer("Example:\n  baton-lab perplexity text.txt --model qwen2.5-coder-0.5b.gguf --chunks 20");
  verb->run([arguments] { return perplexity(*arguments); });
}

}  // namespace baton::inline v1::lab
