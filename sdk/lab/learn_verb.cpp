// SPDX-License-Identifier: Apache-2.0
// baton-lab learn: finds how the placeholders of a workflow's prompts change the KV of the answers handed over to them.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include <baton/baton.h>
#include <baton/lab/learn.h>

#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/lab/dataset.h"
#include "sdk/lab/verbs.h"

namespace baton::inline v1::lab {
using namespace cli;
namespace {

using OrderedJson = nlohmann::ordered_json;

struct LearnArguments {
  WorkflowArguments workflow;
  std::string device = "auto";
  int threads = 0;
  std::string dataset;
  std::size_t limit = 0;
  int rank = 256;
  int jobs = 8;
  std::uint64_t seed = 0;
  bool dry_run = false;
  bool json = false;
};

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return printable(all, Lines::fold);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string table_of(const LearnResult& learned) {
  std::size_t slots = 4, readers = 6;
  for (const auto& one : learned.corrections) {
    slots = std::max(slots, one.slot.size());
    readers = std::max(readers, joined(one.readers).size());
  }
  std::string out = fmt::format("{:<{}}  {:<{}}  answers   tokens  rank      size  change left  KL left  wrong\n",
                                "reader", readers, "slot", slots);
  for (const auto& one : learned.corrections) {
    out += fmt::format("{:<{}}  {:<{}}  {:>7}  {:>7}  ", joined(one.readers), readers, printable(one.slot, Lines::fold),
                       slots, one.texts, grouped(one.tokens));
    if (one.rank == 0) {
      out += "too few answers\n";
      continue;
    }
    out += fmt::format("{:>4}  {:>5.1f} MiB  {:>11}  {:>7}  {:>5}{}\n", one.rank,
                       static_cast<double>(one.bytes) / (1 << 20), percent(one.left),
                       one.kl_plain > 0 ? percent(one.kl_corrected / one.kl_plain) : "-",
                       fmt::format("{}:{}", one.changed_plain, one.changed_corrected), one.kept ? "" : "  not kept");
  }
  return out + fmt::format(
                   "\nchange left  of the squared change of keys and values that an answer's new place makes, where "
                   "100 % is no "
                   "correction\n"
                   "KL left      of rectify's divergence from full prefill, of a typical answer (geometric mean) in {} "
                   "runs not learned from\n"
                   "wrong        of the reader's answers there, those with a token that is not full prefill's: "
                   "without, with\n"
                   "Corrections that do not lower KL, or make more answers wrong, are not kept.\n",
                   learned.checked_runs);
}

std::string json_of(const LearnResult& learned, const std::vector<std::filesystem::path>& files) {
  OrderedJson list = OrderedJson::array();
  for (const auto& one : learned.corrections) {
    list.push_back({{"model", one.model},
                    {"readers", one.readers},
                    {"slot", one.slot},
                    {"answers", one.texts},
                    {"tokens", one.tokens},
                    {"rank", one.rank},
                    {"bytes", one.bytes},
                    {"left", one.left},
                    {"kl_plain", one.kl_plain},
                    {"kl_corrected", one.kl_corrected},
                    {"changed_plain", one.changed_plain},
                    {"changed_corrected", one.changed_corrected},
                    {"kept", one.kept}});
  }
  OrderedJson written = OrderedJson::array();
  for (const auto& file : files) written.push_back(file.string());
  const OrderedJson all = {{"schema", 1},
                           {"corrections", list},
                           {"checked_runs", learned.checked_runs},
                           {"failed_runs", learned.failed_runs},
                           {"files", written}};
  return all.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

int learn(const LearnArguments& arguments) {
  const Workflow workflow = arguments.workflow.load();
  LearnOptions options;
  options.model = arguments.workflow.default_model();
  options.device = arguments.device;
  options.threads = arguments.threads;
  options.rank = arguments.rank;
  options.jobs = arguments.jobs;
  options.seed = arguments.seed;
  options.stop = interrupted();
  for (const Question& question : read_dataset(arguments.dataset, arguments.limit))
    options.inputs.push_back(question.inputs);
  int shown = -1;
  options.on_progress = [&](double share) {
    const int percent = static_cast<int>(100 * share);
    if (!can_redraw() || percent == shown) return;
    shown = percent;
    note(fmt::format("\r\x1b[K{} {:3} %", share < 0.5 ? "running" : share < 0.7 ? "solving" : "checking", percent));
  };
  const auto learned = learn_corrections(workflow, options);
  if (can_redraw()) note("\r\x1b[K");
  if (!learned) {
    note("interrupted: nothing was written\n");
    return kInterrupted;
  }
  if (learned->failed_runs > 0)
    note(fmt::format("{} of {} runs failed; the first: {}\n", learned->failed_runs, options.inputs.size(),
                     printable(learned->first_error, Lines::fold)));
  if (learned->corrections.empty())
    throw Failure(kRunFailed, "nothing was learned: no answer is part of another agent's prompt");
  std::vector<std::filesystem::path> files;
  if (!arguments.dry_run) files = learned->save();
  result(arguments.json ? json_of(*learned, files) : table_of(*learned));
  for (const auto& file : files) note(fmt::format("wrote {}\n", printable(file.string(), Lines::fold)));
  return kOk;
}

}  // namespace

void add_learn(CommandLine& line) {
  auto* verb = line.add_verb("learn", "Learn to correct the KV that a workflow's agents hand over");
  auto arguments = std::make_shared<LearnArguments>();
  arguments->workflow.add_to(*verb);
  verb->add_option("--dataset", arguments->dataset, "Questions, one JSON object per line, as for baton-lab eval")
      ->required()
      ->type_name("FILE.jsonl");
  verb->add_option("--limit", arguments->limit, "Only the first N questions")->type_name("N");
  verb->add_option("--rank", arguments->rank, "Maximum rank of each correction; its size and cost grow with the rank")
      ->type_name("N")
      ->range(1, 65536)
      ->capture_default_str();
  verb->add_option("--device", arguments->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  verb->add_option("--threads", arguments->threads, "CPU threads; 0: one per core")->type_name("N")->range(0, 4096);
  verb->add_option("--jobs", arguments->jobs, "Number of questions that run concurrently")
      ->type_name("N")
      ->range(1, 256)
      ->capture_default_str();
  verb->add_option("--seed", arguments->seed, "Seed of the sampling")->type_name("N");
  verb->add_flag("--dry-run", arguments->dry_run, "Show what was learned without writing it");
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  verb->footer(
      "The workflow is run over the questions with every prompt computed in full. For each placeholder of each "
      "prompt,\n"
      "a linear map is learned from the KV of the answers as handed over to the KV of a full prefill there. One\n"
      "question in six (at most 48) is held out, to measure how much the maps help; those that help are written to\n"
      "baton.corrections.safetensors in the model's folder, or to the cache if that is not writable, next to\n"
      "the corrections of other workflows. Method rectify uses it where the text around the placeholder is the same to "
      "the\n"
      "token; after changing a prompt, learn again. Use some hundred questions, and others than those that you "
      "measure with.\n"
      "\n"
      "Examples:\n"
      "  baton-lab learn team.yaml --dataset questions.jsonl\n"
      "  baton-lab learn team.yaml --dataset questions.jsonl --limit 100 --dry-run");
  verb->run([arguments] { return learn(*arguments); });
}

}  // namespace baton::inline v1::lab
