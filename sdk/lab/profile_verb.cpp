// SPDX-License-Identifier: Apache-2.0
// baton-lab profile: finds the layers that method rectify recomputes, and writes them next to the model.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <baton/baton.h>
#include <baton/lab/profile.h>
#include <baton/preview.h>
#include <baton/system.h>
#include <baton/turns.h>

#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/lab/dataset.h"
#include "sdk/lab/verbs.h"

namespace baton::inline v1::lab {
using namespace cli;

/// Runs the workflow with method full and takes `count` hand-overs from as many questions as there are, of different
/// pairs of agents. Fewer when interrupted or when the dataset gives no more. Throws Failure when it gives none.
std::vector<HandOver> hand_overs_of_runs(const std::string& workflow_file, const std::string& dataset,
                                         const std::string& model, const EngineArguments& engine, std::size_t count,
                                         std::uint64_t seed);

namespace fs = std::filesystem;
namespace {

struct ProfileArguments {
  std::string model;
  EngineArguments engine;
  std::string dataset;
  std::string workflow;
  int hand_overs = 24;
  int max_tokens = 128;
  std::uint64_t seed = 0;
  std::string reading = "effect";
  PairOptions pair;
  std::string svg;
  bool dry_run = false;
  bool json = false;
};

std::string layers_of(const ProfiledRange& range) {
  return fmt::format("l_s {}, l_d {}, l_e {}", range.start, range.detect, range.end);
}

std::string left_of(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// What the layers found by their effect are worth.
std::string worth(const ProfiledEffect& effect, int hand_overs) {
  const auto at = [](const std::vector<double>& curve, int layer) { return curve[static_cast<std::size_t>(layer)]; };
  std::string text = fmt::format(
      "Of the KL divergence of direct reuse ({:.1e} nats a token), {} is left when all reused "
      "tokens are\nrecomputed in layers {} to {}",
      effect.kl_direct, left_of(at(effect.left_end, effect.end)), effect.start, effect.end);
  text += fmt::format("; {} when about a fifth of them are, chosen in layer {}.\n",
                      left_of(at(effect.left_detect, effect.detect)), effect.detect);
  text += fmt::format("Of the {} hand-overs, {:.0f} would carry as much of it if they were equal{}.\n", hand_overs,
                      effect.weighty, effect.weighty < 8 ? "; measure more with --handovers" : "");
  if (const double next = at(effect.left_start, effect.start + 1); !std::isnan(next))
    text += fmt::format("Beginning at layer {} would leave {}.\n", effect.start + 1, left_of(next));
  return text;
}

/// How much the layers hang on which hand-overs were measured.
std::string certainty(const ModelProfile& profile) {
  if (profile.effect) return worth(*profile.effect, profile.hand_overs);
  const ProfiledRange range = profile.range();
  const auto percent = [](double share) { return fmt::format("{:.0f} %", 100 * share); };
  if (profile.hand_overs < 2)
    return "The certainty of the layers cannot be told from one hand-over; measure more with --handovers.\n";
  std::string text = fmt::format("Resampled from the same {} hand-overs, {} of the draws give these layers",
                                 profile.hand_overs, percent(range.agreement));
  if (range.agreement < 0.995) {
    text += fmt::format(" (l_s {}, l_d {}, l_e {})", percent(range.start_agreement), percent(range.detect_agreement),
                        percent(range.end_agreement));
  }
  return text + (range.agreement < 0.8 ? "; measure more with --handovers.\n" : ".\n");
}

std::string text_of(const ModelProfile& profile) {
  std::string others;
  for (const auto& [name, range] : {std::pair("slope", profile.slope), std::pair("level", profile.level)}) {
    if (profile.reading != name) others += fmt::format("; {}: {}", name, layers_of(range));
  }
  const double recomputed =
      static_cast<double>(profile.range().end - profile.range().start) / static_cast<double>(profile.similarity.size());
  std::string out = fmt::format("{}: {} (reading {}{})\n\n", printable(profile.model.filename().string(), Lines::fold),
                                layers_of(profile.range()), profile.reading, others);
  out += profile_plot(profile, terminal_size().columns, !terminal_is_utf8());
  out += fmt::format("\nMeasured on {} tokens of {} hand-overs ({}){}.\n", grouped(profile.tokens), profile.hand_overs,
                     printable(profile.source, Lines::fold),
                     profile.left_out > 0 ? fmt::format("; {} left out, too short or too long", profile.left_out) : "");
  out += certainty(profile);
  if (!profile.effect && profile.range().end + 1 == static_cast<int>(profile.similarity.size())) {
    out += "The similarity does not level off before the last layer, so that the range goes to the end.\n";
  }
  return out + fmt::format("Chosen tokens are recomputed in {:.0f} % of the layers.\n", 100 * recomputed);
}

std::string text_of(const PairProfile& pair) {
  const auto name = [](const fs::path& model) { return printable(model.filename().string(), Lines::fold); };
  std::string out = fmt::format("{} reads what {} wrote: layers {} to {} are recomputed, {} of {}\n\n",
                                name(pair.reader), name(pair.author), pair.group.start, pair.group.end,
                                pair.group.end - pair.group.start + 1, pair.layers);
  out += "layers     recomputed  KL left\n";
  for (const LayerGroup& group : pair.best) {
    const int count = group.end - group.start + 1;
    const bool chosen = group.start == pair.group.start && group.end == pair.group.end;
    out += fmt::format("{:>2} to {:<2} {:>11.0f} % {:>6.1f} %{}\n", group.start, group.end, 100.0 * count / pair.layers,
                       100 * group.left, chosen ? "  <" : "");
  }
  out +=
      fmt::format("\nMeasured on {} tokens of {} hand-overs ({}). Read as it is, the KV leaves {:.2g} nats a token.\n",
                  grouped(pair.tokens), pair.hand_overs, printable(pair.source, Lines::fold), pair.kl_direct);
  if (pair.weighty < 8) {
    out += fmt::format(
        "Of the hand-overs, {:.0f} would carry as much of it if they were equal; measure more with "
        "--handovers.\n",
        pair.weighty);
  }
  return out;
}

std::string text_of(const LevelProfile& profile) {
  std::string out = fmt::format("{}: what auto expects of rectification\n\nreuse  KL divergence  95 % of turns below\n",
                                printable(profile.model.filename().string(), Lines::fold));
  for (const MeasuredLevel& level : profile.levels)
    out += fmt::format("{:>4.0f} %  {:>13.2g}  {:>20.2g}\n", 100 * level.reuse, level.divergence, level.high);
  return out + fmt::format("\nNats per token, mean of a turn; of {} hand-overs.\n", profile.hand_overs);
}

/// What `measure` finds is shown, and written by `save` if that is wanted.
template <class Measure, class Save>
int report(const ProfileArguments& arguments, const Measure& measure, const Save& save) {
  if (interrupted().stop_requested()) return kInterrupted;
  const auto measured = measure();
  if (can_redraw()) note("\r\x1b[K");
  if (!measured) {
    note("interrupted: nothing was written\n");
    return kInterrupted;
  }
  result(arguments.json ? measured->json : text_of(*measured));
  if (arguments.dry_run) return kOk;
  const Whole whole;
  note(fmt::format("wrote {}\n", printable(save(*measured), Lines::fold)));
  return kOk;
}

int profile(const ProfileArguments& arguments) {
  if (arguments.dataset.empty() != arguments.workflow.empty()) {
    throw Failure(kUsage, "--dataset and --workflow must be given together: the workflow is run over the dataset");
  }
  ProfileOptions options;
  options.model = arguments.model;
  options.device = arguments.engine.device;
  options.threads = arguments.engine.threads;
  options.hand_overs = arguments.hand_overs;
  options.max_tokens = arguments.max_tokens;
  options.seed = arguments.seed;
  options.reading = arguments.reading;
  const EngineOptions as_of_a_run = arguments.engine.options(arguments.model, false);
  options.on_load = as_of_a_run.on_load;
  options.on_warning = as_of_a_run.on_warning;
  options.stop = interrupted();
  find_model(arguments.model);  // before anything runs
  if (!arguments.pair.author.empty()) find_model(arguments.pair.author);
  if (arguments.reading == "levels" && !(arguments.dataset + arguments.pair.author + arguments.svg).empty())
    throw Failure(kUsage, "--reading levels takes no --dataset, --author or --svg");
  if (!arguments.dataset.empty()) {
    const std::string& writes = arguments.pair.author.empty() ? arguments.model : arguments.pair.author;
    options.data = hand_overs_of_runs(arguments.workflow, arguments.dataset, writes, arguments.engine,
                                      static_cast<std::size_t>(arguments.hand_overs), arguments.seed);
    options.source = fs::path(arguments.dataset).filename().string();
  }
  using Steady = std::chrono::steady_clock;
  Steady::time_point last{};
  options.on_progress = [&](double share) {
    if (!can_redraw() || Steady::now() - last < std::chrono::milliseconds(100)) return;
    last = Steady::now();
    note(fmt::format("\r\x1b[Kmeasuring {:3.0f} %", 100 * share));
  };
  if (!arguments.pair.author.empty()) {
    return report(
        arguments, [&] { return profile_pair(options, arguments.pair); },
        [](const PairProfile& measured) { return save_profile(measured).string(); });
  }
  if (arguments.reading == "levels") {
    return report(
        arguments, [&] { return profile_levels(options); },
        [](const LevelProfile& measured) { return save_profile(measured).string(); });
  }
  return report(
      arguments, [&] { return profile_model(options); },
      [&](const ModelProfile& measured) {
        const fs::path file = save_profile(measured);
        const fs::path svg = arguments.svg.empty() ? fs::path(file).replace_extension(".svg") : fs::path(arguments.svg);
        write_whole_file(svg, profile_svg(measured).str());
        return fmt::format("{} and {}", file.string(), svg.string());
      });
}

}  // namespace

void add_profile(CommandLine& line) {
  auto* verb = line.add_verb("profile",
                             "Find the layers that method rectify recomputes for a model, or\ndroidspeak between two");
  auto arguments = std::make_shared<ProfileArguments>();
  verb->add_option("--model", arguments->model, "Model folder or name")->required()->type_name("PATH");
  arguments->engine.add_to(*verb);
  auto* dataset = verb->add_option("--dataset", arguments->dataset,
                                   "Measure on real hand-overs: runs of --workflow over these questions")
                      ->type_name("FILE.jsonl");
  verb->add_option("--workflow", arguments->workflow, "The workflow for --dataset")->type_name("FILE")->needs(dataset);
  verb->add_option("--handovers", arguments->hand_overs, "Number of hand-overs to measure")
      ->type_name("N")
      ->range(1, 10000)
      ->capture_default_str();
  verb->add_option("--max-tokens", arguments->max_tokens, "Maximum length of an answer in tokens")
      ->type_name("N")
      ->range(1, 100000)
      ->capture_default_str();
  verb->add_option("--seed", arguments->seed, "Seed of the synthetic hand-overs and of the resampling")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--reading", arguments->reading,
                   "What the layers are found by: the effect of recomputing them, or where the similarity of values\n"
                   "levels off (its slope or its level: RelayCaching, and faster). levels: no layers, but what auto\n"
                   "expects at 90 to 50 % reuse")
      ->one_of({"effect", "slope", "level", "levels"})
      ->capture_default_str();
  auto* author =
      verb->add_option("--author", arguments->pair.author,
                       "Find the group of layers that --model recomputes (method droidspeak) in KV that this\n"
                       "model made; with --workflow its agents are this model")
          ->type_name("PATH");
  verb->add_option("--step", arguments->pair.step,
                   "With --author: groups begin at multiples of N and have a multiple of N layers")
      ->type_name("N")
      ->range(1, 1000)
      ->needs(author)
      ->capture_default_str();
  verb->add_option("--left", arguments->pair.left,
                   "With --author: the fraction of the divergence of unchanged KV that the group may leave")
      ->type_name("FRACTION")
      ->range(0.0, 1.0)
      ->needs(author)
      ->capture_default_str();
  auto* svg = verb->add_option("--svg", arguments->svg, "Where to write the picture; without it next to the profile")
                  ->type_name("FILE");
  verb->add_flag("--dry-run", arguments->dry_run, "Show what was measured without writing it")->excludes(svg);
  svg->excludes(author);
  verb->add_flag("--json", arguments->json, "Print the profile as it is written");
  verb->footer(
      "Answers are decoded, then prefilled inside another prompt, and their values compared layer by layer. The "
      "profile\n"
      "is written to baton.profile.json in the model's folder, or to the cache if that is not writable. A model "
      "that\n"
      "has no profile is profiled by its first run with method rectify.\n\n"
      "Examples:\n"
      "  baton-lab profile --model nano --dry-run\n"
      "  baton-lab profile --model ~/models/qwen3-0.6b --handovers 24\n"
      "  baton-lab profile --model ~/models/qwen3-0.6b.gguf --reading levels --handovers 12\n"
      "  baton-lab profile --model nano --workflow team.yaml --dataset questions.jsonl\n"
      "  baton-lab profile --model ~/models/judge --author ~/models/solver");
  verb->run([arguments] { return profile(*arguments); });
}

namespace {

using Parts = std::vector<PreviewPart>;

std::vector<std::int32_t> tokens_of(Parts::const_iterator begin, Parts::const_iterator end) {
  std::vector<std::int32_t> tokens;
  for (auto part = begin; part != end; ++part) tokens.insert(tokens.end(), part->tokens.begin(), part->tokens.end());
  return tokens;
}

/// Every answer that stands in another turn's prompt, once for each place.
std::vector<HandOver> hand_overs_of(const Workflow& workflow, const Preview& preview) {
  std::vector<HandOver> found;
  const auto turns = workflow.turns();
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Parts& prompt = preview.turns[i].prompt;
    if (!preview.turns[i].complete) continue;  // the result of a tool is not in a record
    for (const auto& slot : turns[i].slots) {
      if (slot.source != SlotInfo::Source::agent_output || slot.turn < 0) continue;
      const TurnPreview& producer = preview.turns[static_cast<std::size_t>(slot.turn)];
      if (!producer.complete || producer.model_path != preview.turns[i].model_path) continue;
      for (auto part = prompt.begin(); part != prompt.end(); ++part) {
        if (part->slot != slot.name || part->tokens.empty()) continue;
        found.push_back({tokens_of(producer.prompt.begin(), producer.prompt.end()), part->tokens,
                         tokens_of(prompt.begin(), part), tokens_of(part + 1, prompt.end())});
      }
    }
  }
  return found;
}

}  // namespace

std::vector<HandOver> hand_overs_of_runs(const std::string& workflow_file, const std::string& dataset,
                                         const std::string& model, const EngineArguments& engine_arguments,
                                         std::size_t count, std::uint64_t seed) {
  WorkflowArguments arguments;
  arguments.file = workflow_file;
  arguments.models = {model};
  arguments.relay = "full";
  const Workflow workflow = arguments.load();
  const auto questions = read_dataset(dataset, count);
  const std::size_t share = (count + questions.size() - 1) / questions.size();
  const Engine engine = Engine::open(engine_arguments.options(model, false));
  engine.prepare(workflow);
  std::vector<HandOver> collected;
  for (std::size_t i = 0; i < questions.size() && collected.size() < count; ++i) {
    if (can_redraw()) note(fmt::format("\r\x1b[Krun {} of {}", i + 1, questions.size()));
    RunOptions options;
    options.inputs = questions[i].inputs;
    options.seed = seed;
    options.stop = interrupted();
    const RunRecord record = engine.run(workflow, options);
    if (interrupted().stop_requested()) break;
    if (record.error_kind == ErrorKind::resources) throw Failure(kResources, record.error);
    if (record.state != RunState::ok) continue;
    PreviewOptions known;
    known.inputs = questions[i].inputs;
    known.record = &record;
    const std::vector<HandOver> all = hand_overs_of(workflow, engine.preview(workflow, known));
    // Another pair of agents each time: neighbours in the list are alike.
    for (std::size_t k = 0; k < std::min(share, all.size()) && collected.size() < count; ++k) {
      collected.push_back(all[(i + k * std::max<std::size_t>(1, all.size() / share)) % all.size()]);
    }
  }
  if (can_redraw()) note("\r\x1b[K");
  if (collected.empty() && !interrupted().stop_requested()) {
    throw Failure(kInvalidFile,
                  fmt::format("{}: no answer of an agent is part of another agent's prompt", workflow_file));
  }
  return collected;
}

}  // namespace baton::inline v1::lab
