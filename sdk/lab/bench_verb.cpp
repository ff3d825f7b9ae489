// SPDX-License-Identifier: Apache-2.0
// baton-lab bench: the time to first token of a chain of agents under each method of handing KV over.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include <baton/baton.h>
#include <baton/lab/bench.h>
#include <baton/reuse_method.h>

#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/lab/verbs.h"

namespace baton::inline v1::lab {
using namespace cli;

/// With one value of an option that takes several: that value, and none of what only several have.
nlohmann::ordered_json json_of(const BenchResult& result, const BenchOptions& options);

namespace {

using OrderedJson = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct BenchArguments {
  BenchOptions bench;
  EngineArguments engine;
  std::vector<int> range;
  std::vector<std::string> decode;  // "ROWSxDEPTH"
  bool config = false;
  bool json = false;
  bool quiet = false;
};

std::string milliseconds(double ms) { return fmt::format("{:.{}f} ms", ms, ms < 10 ? 2 : ms < 100 ? 1 : 0); }

std::string name_of(const BenchMethod& method) {
  if (method.select > 0) return fmt::format("{} {:g}", method.method, method.select);
  return method.learned > 0 ? fmt::format("{} {}", method.method, method.learned) : method.method;
}

const BenchMethod* find(const std::vector<BenchMethod>& methods, const std::string& name) {
  const auto found = std::find_if(methods.begin(), methods.end(), [&](const auto& one) { return one.method == name; });
  return found == methods.end() ? nullptr : &*found;
}

/// "4.2 x", or nothing where the other method was not measured.
std::string speedup(const BenchMethod* over, const BenchMethod& method, std::size_t agent) {
  if (over == nullptr || over->method == method.method) return {};
  return fmt::format("{:.2f} x", over->agents[agent].ttft_ms / method.agents[agent].ttft_ms);
}

/// What the row of agents took with their answers decoded, where it was run.
std::string rows_of(const std::vector<BenchMethod>& methods) {
  const BenchMethod* lockstep = find(methods, "lockstep");
  if (lockstep == nullptr || lockstep->row_ms == 0) return {};
  const BenchMethod* full = find(methods, "full");
  if (full != nullptr && full->row_ms == 0) full = nullptr;
  std::string out = "\nall agents with their answers: method, to the last token, ms per decoded token of each agent\n";
  for (const auto& method : methods) {
    if (method.row_ms == 0) continue;
    out += fmt::format("       {}{:>11} ", padded(name_of(method), 12), milliseconds(method.row_ms));
    for (std::size_t i = 0; i < method.agents.size(); ++i) {
      const double ms = method.agents[i].decode_ms_per_token;
      out += fmt::format("{:>9.2f}", ms);
      if (&method == lockstep && full != nullptr)
        out += fmt::format(" ({:+.0f} %)", 100 * (ms / full->agents[i].decode_ms_per_token - 1));
    }
    out += '\n';
  }
  out += "lockstep: agent, computed ahead, first token, over a pass over the text behind the last placeholder\n";
  for (const auto& agent : lockstep->agents) {
    out += fmt::format("{:>5}{:>11.1f} %{:>13}{:>9.2f} x\n", agent.agent, 100 * agent.ahead_rate,
                       milliseconds(agent.ttft_ms), agent.ttft_ms / agent.text_pass_ms);
  }
  return out;
}

std::string text_of(const std::vector<BenchMethod>& methods) {
  const BenchMethod* full = find(methods, "full");
  const BenchMethod* prefix = find(methods, "prefix");
  std::string out = "agent  tokens  method      first token  over full  over prefix  KV reused\n";
  for (std::size_t agent = 0; agent < methods.front().agents.size(); ++agent) {
    for (const auto& method : methods) {
      const BenchAgent& numbers = method.agents[agent];
      out += fmt::format("{:>5}  {:>6}  {}{:>11}{:>11}{:>13}{:>9.1f} %\n", numbers.agent, numbers.prompt_tokens,
                         padded(name_of(method), 12), milliseconds(numbers.ttft_ms), speedup(full, method, agent),
                         speedup(prefix, method, agent), 100 * numbers.kv_reuse_rate);
    }
  }
  return out + rows_of(methods);
}

std::string memory_of(const std::vector<BenchMemory>& memory) {
  if (memory.empty()) return {};
  std::string out =
      "\nbytes per token: running, recording, ahead | keys and values, hidden, attention, entropy, id | anchor\n";
  for (const auto& one : memory) {
    out += fmt::format("       {}{:>10.1f}{:>10.1f}{:>10.1f} |{:>10.1f}{:>8.1f}{:>5.1f}{:>5.1f}{:>5.1f} |{:>10.1f}\n",
                       padded(one.method, 12), one.cache, one.cache_recording, one.ahead, one.keys_values, one.hidden,
                       one.received, one.entropy, one.ids, one.learned);
  }
  return out;
}

std::string text_of(const BenchResult& result) {
  std::string out = fmt::format("{}, {} layers, {}{}, on {}\n", result.shape, result.layers, result.dtype,
                                result.activations == "bf16" ? " with bf16 activations" : "", result.device);
  out += fmt::format("limits: {:.0f} GFLOP/s of {}, {:.1f} GB/s; logits {}\n", result.gemm_gflops, result.products,
                     result.bandwidth_gbs, result.logits_hash.empty() ? "not hashed" : result.logits_hash);
  for (const auto& line : result.prefill) {
    out += fmt::format("prefill {:>5} tokens            {:>9.1f} tokens/s  {:>3.0f} % of the limit\n", line.tokens,
                       line.tokens_per_s, 100 * line.share);
  }
  for (const auto& line : result.decode) {
    out += fmt::format(
        "decode  {:>5} x {:>4} tokens deep  {:>8.1f} tokens/s  {:>3.0f} % of the limit; recording {:+.1f} %\n",
        line.rows, line.depth, line.tokens_per_s, 100 * line.share, 100 * line.recording);
  }
  if (result.row_costs) {
    out += fmt::format("prompt rows in a decode step, {} tokens deep:", result.row_costs->depth);
    for (const auto& step : result.row_costs->steps) out += fmt::format(" {}: {:.3f} ms", step.rows, step.ms);
    out += fmt::format("; {} lengthen a step by at most {:.0f} %\n", result.row_costs->knee,
                       100 * result.row_costs->slowdown);
  }
  out += fmt::format("ready after {}\n", milliseconds(result.load_ms));
  if (result.methods.empty() && result.cases.empty()) return out;
  if (!result.methods.empty()) out += '\n' + text_of(result.methods);
  for (const BenchCase& one : result.cases) {
    out += fmt::format("\nrole texts of {} tokens, answers of {}\n", one.prefix, one.output);
    out += one.error.empty() ? text_of(one.methods) : one.error + "\n";
  }
  out += memory_of(result.memory);
  out += fmt::format(
      "\nrectify's layers: {}, {}, {}; bytes per token: {} in the KV cache, {} in the segment store; peak: {} and {}\n",
      result.layers_range[0], result.layers_range[1], result.layers_range[2], grouped(result.kv_bytes_per_token),
      grouped(result.segment_bytes_per_token), size(static_cast<double>(result.kv_peak_bytes)),
      size(static_cast<double>(result.segments_peak_bytes)));
  return out;
}

/// The library names the member of BenchOptions; the option has the same name, written with hyphens.
std::string option_of(std::string text) {
  const auto colon = std::min(text.find(':'), text.size());
  std::replace(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(colon), '_', '-');
  return "--" + text;
}

/// "8x1024": 8 sequences, each 1024 tokens deep.
DecodeStep decode_of(const std::string& text) {
  DecodeStep step;
  char behind = 0;
  if (std::sscanf(text.c_str(), "%dx%d%c", &step.rows, &step.depth, &behind) != 2)
    throw Failure(kUsage, fmt::format("--decode: '{}' is invalid: expected ROWSxDEPTH, for example 8x1024", text));
  return step;
}

int bench(BenchArguments arguments) {
  BenchOptions& options = arguments.bench;
  options.device = arguments.engine.device;
  options.threads = arguments.engine.threads;
  options.slowdown = arguments.engine.slowdown;
  if (options.shape.empty() && options.model.empty())
    throw Failure(kUsage, "--shape: expected a shape, or a model given with --model");
  if (arguments.config) {
    if (options.shape.empty())
      throw Failure(kUsage, "--config: expected --shape; only shapes have a configuration to print");
    result(OrderedJson::parse(bench_config(options.shape)).dump(2) + "\n");
    return kOk;
  }
  for (const std::string& step : arguments.decode) options.decode.push_back(decode_of(step));
  if (!arguments.range.empty()) options.layers_range = {arguments.range[0], arguments.range[1], arguments.range[2]};
  options.stop = interrupted();
  const bool shown = !arguments.quiet;
  if (shown) {
    options.on_progress = [last = Clock::time_point()](const std::string& what) mutable {
      if (can_redraw()) return note("\r\x1b[K" + head(what, terminal_size().columns - 1));
      if (Clock::now() - last < std::chrono::seconds(10)) return;
      last = Clock::now();
      note(what + "\n");
    };
  }
  BenchResult found;
  try {
    found = run_bench(options);
  } catch (const InputError& error) {
    throw Failure(kUsage, option_of(error.what()));
  }
  if (shown && can_redraw()) note("\r\x1b[K");
  if (found.complete || arguments.json)
    result(arguments.json ? json_of(found, options).dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n"
                          : text_of(found));
  for (const BenchCase& one : found.cases) {
    if (!one.error.empty())
      throw Failure(kResources,
                    fmt::format("role texts of {} tokens, answers of {}: {}", one.prefix, one.output, one.error));
  }
  return found.complete ? kOk : kInterrupted;
}

}  // namespace

void add_bench(CommandLine& line) {
  auto* verb = line.add_verb("bench", "Measure the time to first token of each method of handing KV over");
  auto arguments = std::make_shared<BenchArguments>();
  BenchOptions& options = arguments->bench;
  arguments->engine.add_to(*verb);
  auto* model = verb->add_option("--model", options.model, "Model folder or name")->type_name("PATH");
  verb->add_option("--shape", options.shape, "A known model's shape with random weights")
      ->type_name("NAME")
      ->one_of(bench_shapes())
      ->excludes(model);
  verb->add_option("--layers", options.layers, "How many layers of the shape are measured; without it all of them")
      ->type_name("N")
      ->range(1, 1024);
  verb->add_option("--agents", options.agents,
                   "How many agents run one after the other; each sees the answers of those before it")
      ->type_name("N")
      ->range(1, 32)
      ->capture_default_str();
  verb->add_option("--prefix", options.prefix, "Length of each agent's own role text in tokens (128)")
      ->delimiter(',')
      ->type_name("N,N");
  verb->add_option("--question", options.question, "Length of the question in tokens")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--output", options.output,
                   "Length of each answer in tokens (256); where this option or --prefix has several values, every "
                   "pair is measured")
      ->delimiter(',')
      ->type_name("N,N");
  std::vector<std::string> known = {"none"};
  for (const ReuseMethod& method : reuse_methods()) {
    known.push_back(method.name);
    const bool one_pass = !method.ahead && !method.learns && !method.group;
    if (one_pass) options.methods.push_back(method.name);
  }
  verb->add_option("--methods", options.methods,
                   "Methods to measure; with lockstep all agents also decode their answers, under every method; none: "
                   "no agents, only prefill and decode of the bare model")
      ->delimiter(',')
      ->type_name("A,B")
      ->one_of(known);
  verb->add_option("--prefill", options.prefill,
                   "Prompt lengths for prefill of the bare model, in tokens; without it 64,512")
      ->delimiter(',')
      ->type_name("N,N")
      ->range(1, 1 << 20);
  verb->add_option("--decode", arguments->decode,
                   "Decode steps of the bare model: how many sequences, and how many cached tokens each has; without "
                   "it 1x512,4x512,16x512")
      ->delimiter(',')
      ->type_name("NxN,NxN");
  verb->add_flag("--rows", options.rows, "Also measure what prompt rows in a decode step cost");
  verb->add_option("--row-methods", options.row_methods,
                   "With lockstep: the methods under which answers are decoded, in place of all; none: no answers are "
                   "decoded, and lockstep computes ahead before it is timed")
      ->delimiter(',')
      ->type_name("A,B")
      ->one_of(known);
  verb->add_option("--select", options.select,
                   "Fractions of the reused tokens that epic, cacheblend and rectify recompute (0.18), one row each")
      ->delimiter(',')
      ->type_name("0..1");
  verb->add_flag("--from-host", options.from_host,
                 "Reused texts are in host memory when an agent begins (the host tier of a GPU)");
  verb->add_flag("--memory", options.memory, "Also measure the bytes that each method holds per token");
  verb->add_option("--anchors", options.learned,
                   "With method anchors: the number of anchors of each placeholder, one row each")
      ->delimiter(',')
      ->type_name("N,N")
      ->range(1, 1000);
  verb->add_option("--layers-range", arguments->range, "First, detection and last layer of method rectify")
      ->delimiter(',')
      ->expected(3, 3)
      ->type_name("A,B,C");
  verb->add_option("--dtype", options.dtype, "Data type of weights and KV")
      ->type_name("bf16|f32")
      ->one_of({"bf16", "f32"})
      ->capture_default_str();
  verb->add_option("--activations", options.activations, "Type of the inputs of products with bf16 weights, on the CPU")
      ->type_name("f32|bf16")
      ->one_of({"f32", "bf16"})
      ->capture_default_str();
  verb->add_option("--seed", options.seed, "Seed of the random weights and tokens")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--repeat", options.repeat,
                   "Report the median of N runs; without it 3, or 1 above a billion weights")
      ->type_name("N")
      ->range(1, 1000);
  verb->add_flag("--config", arguments->config,
                 "Only print the shape's config.json, to measure another engine with it");
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  verb->add_flag("-q,--quiet", arguments->quiet, "Show no progress");
  verb->footer(
      "Texts are random tokens. The question and the answers are computed once and shared by all methods; role texts "
      "are\n"
      "cached as exact prefixes for every method but full. docs/lab.md describes the JSON.\n\n"
      "Examples:\n"
      "  baton-lab bench --shape smollm2-135m --agents 3\n"
      "  baton-lab bench --shape llama-3.1-8b --layers 8 --methods full,prefix,rectify --json\n"
      "  baton-lab bench --model nano --prefix 32 --question 48 --output 40\n"
      "  baton-lab bench --shape qwen3-0.6b --agents 3 --prefix 64,512 --output 128,1024 --methods full,rectify "
      "--select "
      "0.18,0.05\n"
      "  baton-lab bench --shape llama-3.1-8b --methods none --prefill 512,3584 --decode 1x1024,8x1024 --rows");
  verb->run([arguments] { return bench(*arguments); });
}

namespace {

OrderedJson json_of(const BenchBreakdown& parts) {
  return {{"match", parts.match},
          {"copy", parts.copy},
          {"full_layers", parts.full_layers},
          {"detect", parts.detect},
          {"sparse_layers", parts.sparse_layers},
          {"tail", parts.tail},
          {"other", parts.other}};
}

OrderedJson json_of(const BenchMethod& method) {
  OrderedJson agents = OrderedJson::array();
  for (const auto& agent : method.agents) {
    agents.push_back({{"agent", agent.agent},
                      {"prompt_tokens", agent.prompt_tokens},
                      {"ttft_ms", agent.ttft_ms},
                      {"kv_reuse_rate", agent.kv_reuse_rate},
                      {"breakdown_ms", json_of(agent.breakdown_ms)}});
    if (method.row_ms > 0) agents.back()["decode_ms_per_token"] = agent.decode_ms_per_token;
    if (const ReuseMethod* found = find_reuse_method(method.method); !found || !found->ahead) continue;
    agents.back()["ahead_rate"] = agent.ahead_rate;
    agents.back()["text_pass_ms"] = agent.text_pass_ms;
  }
  OrderedJson json = {{"method", method.method}};
  if (method.learned > 0) json["anchors"] = method.learned;
  if (method.select > 0) json["select"] = method.select;
  json["agents"] = std::move(agents);
  json["wall_ms"] = method.wall_ms;
  if (method.row_ms > 0) json["row_ms"] = method.row_ms;
  return json;
}

OrderedJson json_of(const std::vector<BenchMethod>& methods) {
  OrderedJson json = OrderedJson::array();
  for (const auto& method : methods) json.push_back(json_of(method));
  return json;
}

OrderedJson json_of(const BenchCase& one) {
  OrderedJson json = {{"prefix", one.prefix}, {"output", one.output}, {"methods", json_of(one.methods)}};
  if (!one.error.empty()) json["error"] = one.error;
  return json;
}

OrderedJson json_of(const BenchMemory& memory) {
  return {{"method", memory.method},
          {"cache", memory.cache},
          {"cache_recording", memory.cache_recording},
          {"ahead", memory.ahead},
          {"keys_values", memory.keys_values},
          {"hidden", memory.hidden},
          {"received", memory.received},
          {"entropy", memory.entropy},
          {"ids", memory.ids},
          {"anchor", memory.learned}};
}

/// The value itself where there is one.
template <typename T>
OrderedJson one_or_more(const std::vector<T>& values) {
  return values.size() == 1 ? OrderedJson(values.front()) : OrderedJson(values);
}

OrderedJson json_of(const RowCosts& costs) {
  OrderedJson steps = OrderedJson::array();
  for (const auto& step : costs.steps) steps.push_back({{"rows", step.rows}, {"ms", step.ms}});
  return {{"depth", costs.depth}, {"slowdown", costs.slowdown}, {"knee", costs.knee}, {"steps", std::move(steps)}};
}

}  // namespace

OrderedJson json_of(const BenchResult& result, const BenchOptions& options) {
  OrderedJson prefill = OrderedJson::array(), decode = OrderedJson::array();
  for (const auto& line : result.prefill) {
    prefill.push_back({{"tokens", line.tokens}, {"tokens_per_s", line.tokens_per_s}, {"share", line.share}});
  }
  for (const auto& line : result.decode) {
    decode.push_back({{"depth", line.depth},
                      {"rows", line.rows},
                      {"tokens_per_s", line.tokens_per_s},
                      {"share", line.share},
                      {"recording", line.recording}});
  }
  OrderedJson json = {
      {"schema", 1},
      {"device", result.device},
      {"shape", result.shape},
      {"dtype", result.dtype},
      {"activations", result.activations},
      {"threads", result.threads},
      {"params",
       {{"layers", result.layers},
        {"layers_range", result.layers_range},
        {"agents", options.agents},
        {"prefix", one_or_more(options.prefix)},
        {"question", options.question},
        {"output", one_or_more(options.output)},
        {"select", one_or_more(options.select)},
        {"from_host", options.from_host},
        {"seed", options.seed},
        {"repeat", result.repeat}}},
      {"limits",
       {{"products", result.products}, {"gemm_gflops", result.gemm_gflops}, {"bandwidth_gbs", result.bandwidth_gbs}}},
      {"logits_hash", result.logits_hash},
      {"prefill", std::move(prefill)},
      {"decode", std::move(decode)},
      {"methods", json_of(result.methods)},
      {"memory",
       {{"weights_bytes", result.weights_bytes},
        {"kv_bytes_per_token", result.kv_bytes_per_token},
        {"segment_bytes_per_token", result.segment_bytes_per_token},
        {"kv_peak_bytes", result.kv_peak_bytes},
        {"segments_peak_bytes", result.segments_peak_bytes}}},
      {"load_ms", result.load_ms},
      {"complete", result.complete}};
  if (result.row_costs) json["row_costs"] = json_of(*result.row_costs);
  if (options.prefix.size() * options.output.size() > 1) {
    json["cases"] = OrderedJson::array();
    for (const auto& one : result.cases) json["cases"].push_back(json_of(one));
  }
  if (options.memory) {
    json["memory"]["by_method"] = OrderedJson::array();
    for (const auto& one : result.memory) json["memory"]["by_method"].push_back(json_of(one));
  }
  return json;
}

}  // namespace baton::inline v1::lab
