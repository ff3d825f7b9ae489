// SPDX-License-Identifier: Apache-2.0
#include "sdk/report/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/view.h"
#include "sdk/report/fields.h"

namespace baton::cli {
namespace {

constexpr std::size_t kMaxRecordBytes = 64 << 20, kMaxEventsBytes = 256 << 20, kMaxGraphBytes = 16 << 20;

SlotRecord slot_of(const RecordFields& fields) {
  SlotRecord slot;
  slot.name = fields.text("name");
  slot.tokens = fields.count("tokens");
  slot.method = fields.text("method");
  slot.reused_tokens = fields.count("reused_tokens");
  slot.recomputed_tokens = fields.count("recomputed_tokens");
  slot.ahead_tokens = fields.count("ahead_tokens", 0);
  slot.kv_reuse_rate = fields.share("kv_reuse_rate");
  slot.kv_reuse_bound = fields.share("kv_reuse_bound", slot.kv_reuse_rate);
  slot.hops = static_cast<int>(std::min<std::int64_t>(fields.count("hops"), 1'000'000));
  slot.corrected = fields.truth("corrected", false);
  slot.reason = fields.text("reason");
  if (const auto anchors = fields.object_if_there("anchors")) {
    SlotAnchors& found = slot.anchors.emplace();
    found.anchors = static_cast<int>(std::min<std::int64_t>(anchors->count("anchors"), 1'000'000));
    found.ambiguity = anchors->share("ambiguity");
    found.distance = anchors->number("distance");
    if (!anchors->is_null("predicted_error")) found.predicted_error = anchors->number("predicted_error");
  }
  return slot;
}

ToolUse tool_of(const RecordFields& fields) {
  ToolUse use;
  use.tool = fields.text("tool");
  use.arguments = fields.text("arguments");
  use.code = fields.text("code");
  use.ok = fields.truth("ok");
  use.result = fields.text("result");
  use.wall_ms = fields.number("wall_ms");
  use.generation = static_cast<int>(std::min<std::int64_t>(fields.count("generation"), 1'000'000));
  return use;
}

}  // namespace

KvRecord kv_record(const RecordFields& fields) {
  KvRecord kv;
  kv.entries = fields.count("entries");
  kv.reused = fields.count("reused");
  kv.computed = fields.count("computed");
  kv.ahead = fields.count("ahead", 0);
  kv.reuse_rate = fields.share("reuse_rate");
  return kv;
}

AgentRecord agent_record(const RecordFields& fields) {
  AgentRecord agent;
  agent.agent = fields.id("agent");
  agent.turn = fields.turn_id("turn");
  agent.role = fields.text("role");
  agent.model = fields.text("model", "");
  const std::int64_t round = fields.count("round");
  if (round < 1 || round > 1'000'000) fields.fail("round", "a whole number from 1 to 10^6");
  agent.round = static_cast<int>(round);
  agent.state = fields.one_of<TurnState>("state");
  agent.error = fields.text("error", "");
  agent.attempts = static_cast<int>(std::min<std::int64_t>(fields.count("attempts", 1), 1'000'000));
  agent.prompt_tokens = fields.count("prompt_tokens");
  agent.output_tokens = fields.count("output_tokens");
  agent.output = fields.text("output");
  agent.answer = fields.text("answer", "");
  if (!fields.is_null("probabilities")) agent.probabilities = fields.shares("probabilities");
  if (!fields.is_null("tools")) {
    for (const RecordFields& tool : fields.list("tools")) agent.tools.push_back(tool_of(tool));
  }
  agent.finish_reason = fields.one_of_if_there<FinishReason>("finish_reason");
  agent.truncated = fields.truth("truncated", agent.finish_reason == FinishReason::length);
  agent.kv = kv_record(fields.object("kv"));
  agent.ttft_ms = fields.number("ttft_ms");
  agent.prefill_ms = fields.number("prefill_ms");
  agent.decode_ms = fields.number("decode_ms");
  agent.tokens_per_s = fields.number("tokens_per_s");
  agent.drafted_tokens = fields.count("drafted_tokens", 0);
  agent.accepted_tokens = fields.count("accepted_tokens", 0);
  agent.tentative_ms = fields.number("tentative_ms", 0);
  agent.tentative_tokens = fields.count("tentative_tokens", 0);
  agent.confirmed_tokens = fields.count("confirmed_tokens", 0);
  for (auto [name, value] :
       {std::pair("expected_nats", &agent.expected_nats), std::pair("guard_nats", &agent.guard_nats),
        std::pair("guard_change", &agent.guard_change)}) {
    if (!fields.is_null(name)) *value = fields.number(name);
  }
  for (const RecordFields& slot : fields.list("slots")) agent.slots.push_back(slot_of(slot));
  if (const auto history = fields.object_if_there("history")) {
    HistoryRecord& found = agent.history.emplace();
    found.runs = static_cast<int>(std::min<std::int64_t>(history->count("runs"), 1'000'000));
    found.forgotten = static_cast<int>(std::min<std::int64_t>(history->count("forgotten"), 1'000'000));
    found.tokens = history->count("tokens");
    found.continued = history->count("continued");
  }
  return agent;
}

namespace {

/// The texts as the file has them; `names` holds each of their names.
NamedTexts in_order(std::vector<NamedTexts::value_type> texts, const std::vector<std::string>& names) {
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
  std::sort(texts.begin(), texts.end(),
            [&](const auto& a, const auto& b) { return places.at(a.first) < places.at(b.first); });
  return NamedTexts(std::move(texts));
}

RunRecord run_of(const std::string& bytes, const std::string& file) {
  const JsonDocument json = RecordFields::parse(bytes, file);
  const RecordFields fields(*json, file, "");
  RunRecord run;
  if (fields.count("schema") != run.schema) fields.fail("schema", fmt::format("{}", run.schema));
  run.workflow = fields.text("workflow");
  run.state = fields.one_of<RunState>("state");
  run.error = fields.text("error", "");
  run.error_kind = fields.one_of_if_there<ErrorKind>("error_kind");
  const RecordFields model = fields.object("model");
  run.model_path = model.text("path");
  run.model_fingerprint = model.text("fingerprint");
  run.device = fields.text("device");
  run.device_fallback = fields.text("device_fallback", "");
  run.relay = fields.text("relay");
  run.seed = fields.unsigned_number("seed");
  run.version = fields.text("version", "");
  run.date = fields.text("date", "");
  run.threads = static_cast<int>(std::min<std::int64_t>(fields.count("threads", 0), 1'000'000));
  if (!fields.is_null("inputs")) run.inputs = in_order(fields.texts("inputs"), RecordFields::names(bytes, "inputs"));
  run.outputs = in_order(fields.texts("outputs"), RecordFields::names(bytes, "outputs"));
  run.load_ms = fields.number("load_ms", 0);
  run.measure_ms = fields.number("measure_ms", 0);
  run.wall_ms = fields.number("wall_ms");
  for (const RecordFields& agent : fields.list("agents")) run.agents.push_back(agent_record(agent));
  const RecordFields memory = fields.object("memory");
  const auto bytes_of = [&memory](const char* name, std::optional<double> otherwise = {}) {
    return static_cast<std::int64_t>(memory.number(name, otherwise));
  };
  run.memory.weights_bytes = bytes_of("weights_bytes");
  run.memory.kv_peak_bytes = bytes_of("kv_peak_bytes");
  run.memory.segments_peak_bytes = bytes_of("segments_peak_bytes");
  run.memory.host_segments_peak_bytes = bytes_of("host_segments_peak_bytes", 0);
  run.memory.anchors_bytes = bytes_of("anchors_bytes", 0);
  return run;
}

}  // namespace

double TurnTime::begin_ms() const {
  for (const Piece& piece : pieces) {
    if (piece.kind != Piece::Kind::wait) return piece.begin_ms;
  }
  return end_ms();
}

Report read_report(const std::filesystem::path& folder) {
  const RecordFiles files(folder);
  const auto run = files.whole("run.json", kMaxRecordBytes);
  if (!run) {
    throw Failure(kInvalidFile, fmt::format("{}: expected a folder that 'baton run --record' wrote, found no run.json",
                                            folder.string()));
  }
  Report report;
  report.run = run_of(*run, files.path_of("run.json"));
  report.times.resize(report.run.agents.size());
  if (const auto events = files.whole("events.ndjson", kMaxEventsBytes)) {
    read_events(*events, files.path_of("events.ndjson"), report);
  } else {
    report.no_times = "events.ndjson is missing";
  }
  if (const auto graph = files.whole("graph.json", kMaxGraphBytes))
    report.graph = read_graph(*graph, files.path_of("graph.json"), report.run);
  const std::size_t shown = std::min(report.run.agents.size(), kMaxTurns);
  for (std::size_t i = 0; i < shown; ++i) {
    report.prompts.push_back(files.start_of("prompts/" + turn_name(report.run.agents[i]) + ".txt", kMaxTextBytes + 1));
  }
  return report;
}

}  // namespace baton::cli
