// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/method.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "engine/reuse/decision.h"
#include "engine/reuse/method_state.h"
#include "engine/reuse/options.h"
#include "engine/reuse/schedule.h"

namespace baton {

using Prefixes = MethodTraits::Prefixes;
using Layers = MethodTraits::Layers;

bool is_exact(const Method& method) { return method.traits.exact; }
bool hands_over(const Method& method) { return method.traits.segments; }
bool computes_ahead(const Method& method) { return method.traits.ahead; }
bool decides(const Method& method) { return method.traits.segments && method.traits.ahead; }
bool reads_other_models(const Method& method) { return method.traits.models; }
bool reuses_prefixes(const Method& method) { return method.traits.prefixes != Prefixes::never; }
bool always_reuses_prefixes(const Method& method) { return method.traits.prefixes == Prefixes::always; }
bool needs_range(const Method& method) { return method.traits.layers == Layers::detection; }
bool needs_group(const Method& method) { return method.traits.layers == Layers::group; }
bool needs_hidden_states(const Method& method) { return method.traits.hidden_states; }
bool chooses_tokens(const Method& method) { return method.recompute != nullptr; }
bool learns(const Method& method) { return method.traits.learns; }
bool uses_levels(const Method& method) { return method.traits.measures; }
bool may_begin_tentatively(const Method& method) { return method.traits.tentative; }

bool takes_segments(const ReuseOptions& reuse) { return takes_segments(reuse, as_asked(reuse)); }

bool reads_attention(const ReuseOptions& reuse) {
  if (!reuse.method->traits.segments) return true;
  return reuse.method->reads_attention != nullptr && reuse.method->reads_attention(reuse);
}

const Method& segment_method(const ReuseOptions& reuse) {
  return reuse.method->segments_by != nullptr ? reuse.method->segments_by() : *reuse.method;
}

const Method& ahead_method(const ReuseOptions& reuse) {
  return reuse.method->ahead_by != nullptr ? reuse.method->ahead_by() : *reuse.method;
}

double asked_reuse(const ReuseOptions& reuse) {
  return reuse.method->asked_reuse != nullptr ? reuse.method->asked_reuse(reuse) : 0.0;
}

double max_reuse(const ReuseOptions& reuse, const LayerRange& range, std::int32_t layers) {
  return reuse.method->max_reuse != nullptr ? reuse.method->max_reuse(reuse, range, layers) : 1.0;
}

double wanted_ttft_ms(const ReuseOptions& reuse) {
  return reuse.method->wanted_ttft_ms != nullptr ? reuse.method->wanted_ttft_ms(reuse) : 0.0;
}

bool wants_paper_range(const ReuseOptions& reuse) {
  return reuse.method->wants_paper_range != nullptr && reuse.method->wants_paper_range(reuse);
}

void GivenKeys::refuse(std::initializer_list<std::string_view> names, const std::string& because) {
  for (const std::string_view name : names) {
    if (has(name)) error(name, fmt::format("`{}` has no effect {}", name, because));
  }
}

void read_keys(GivenKeys& given, ReuseOptions& options) {
  if (options.method->read != nullptr) options.method->read(given, options);
}

MethodKey reuse_key() {
  return {.name = "reuse",
          .type = MethodKey::Type::number_above,
          .high = 1,
          .doc =
              "the fraction of the handed-over (token, layer) entries that is not recomputed; the number of tokens "
              "follows from it.",
          .only_here = true};
}

void expect_fraction(std::string& problem, const char* what, double value) {
  if (problem.empty() && !(value >= 0.0 && value <= 1.0))
    problem = fmt::format("reuse: {} is {}; expected a number from 0 to 1", what, value);
}

void expect_not_negative(std::string& problem, const char* what, double value) {
  if (problem.empty() && !(value >= 0.0)) problem = fmt::format("reuse: {} is {}; expected at least 0", what, value);
}

std::string problem_of(const ReuseOptions& reuse) {
  if (reuse.method == nullptr) return "reuse: the method is null; expected a row of the method table";
  std::string problem = reuse.method->problem != nullptr ? reuse.method->problem(reuse) : std::string();
  expect_not_negative(problem, "max_hops", reuse.max_hops);
  return problem;
}

bool keeps_prefixes(const ReuseOptions& reuse) { return reuses_prefixes(*reuse.method) && reuse.prefix; }
bool takes_prefixes(const ReuseOptions& reuse) {
  return always_reuses_prefixes(*reuse.method) || keeps_prefixes(reuse);
}

/// A change of the logits whose mean square is s nats^2 is a divergence of s / 2 (to the second order).
double near_tie(const ReuseDecision& decision, float nats, std::size_t tokens) {
  if (decision.tie_factor <= 0.0f || decision.exact) return 0.0;
  if (nats < 0.0f) return HUGE_VAL;
  return decision.tie_factor * std::sqrt(2.0 * static_cast<double>(nats) * static_cast<double>(tokens));
}

ReuseDecision as_asked(const ReuseOptions& reuse) {
  ReuseDecision decision;
  decision.exact = decides(*reuse.method) && reuse.exactness != Exactness::as_method;
  if (decision.exact && reuse.exactness == Exactness::exact_reader) decision.reason = "its reader is declared exact";
  decision.range = reuse.range;
  decision.reuse = asked_reuse(reuse);
  return decision;
}

ReuseDecision exact_because(const ReuseOptions& reuse, std::string reason) {
  ReuseDecision decision = as_asked(reuse);
  decision.exact = true;
  decision.reason = std::move(reason);
  decision.range = {};
  decision.reuse = 0.0;
  return decision;
}

ReuseDecision decide_early(const ReuseOptions& reuse, const Calibration& calibration, PlaceId place) {
  ReuseDecision decision = as_asked(reuse);
  if (reuse.method->decide != nullptr) reuse.method->decide(reuse, calibration, place, decision);
  return decision;
}

namespace {

/// Fills in the model's layers if the options have none.
void resolve_layers(const ReuseOptions& reuse, const Calibration& calibration, std::int32_t layers,
                    ReuseDecision& decision) {
  const Method& method = *reuse.method;
  LayerRange& range = decision.range;
  if (method.traits.layers == Layers::group) {
    if (range.is_group(layers)) return;
    throw std::invalid_argument(
        fmt::format("reuse: {} needs the group of layers that readers recompute; expected start < end < {}, "
                    "found {} to {}",
                    method.name, layers, range.start, range.end));
  }
  const bool unused = method.traits.layers == Layers::none && range.is_group(layers);
  if (range.given() && !range.valid(layers) && !unused) {
    throw std::invalid_argument(
        fmt::format("reuse: invalid layers: expected 0 <= start < detect < end < {}, found start {}, "
                    "detect {}, end {}",
                    layers, range.start, range.detect, range.end));
  }
  if (!range.valid(layers)) range = wants_paper_range(reuse) ? calibration.paper_range : calibration.range;
  if (range.valid(layers)) return;
  if (method.traits.layers == Layers::detection) {
    throw std::invalid_argument(
        fmt::format("reuse: {} needs the model's layer range, and the model has not been profiled", method.name));
  }
  range = {};
}

}  // namespace

ReuseDecision decide(const ReuseOptions& reuse, const Calibration& calibration, PlaceId place, std::int32_t layers) {
  ReuseDecision decision = decide_early(reuse, calibration, place);
  if (decides(*reuse.method) && !takes_segments(reuse, decision) && !decision.range.given()) return decision;
  resolve_layers(reuse, calibration, layers, decision);
  if (decision.reuse <= 0.0) return decision;
  if (const double bound = max_reuse(reuse, decision.range, layers); decision.reuse > bound + 1e-6) {
    throw std::invalid_argument(fmt::format(
        "reuse: method {} cannot reuse {:.3f} of the entries; expected at most {:.3f}, since its layers up to the "
        "choice are computed for every token",
        reuse.method->name, decision.reuse, bound));
  }
  return decision;
}

bool takes_segments(const ReuseOptions& reuse, const ReuseDecision& decision) {
  return reuse.method->traits.segments && !decision.exact;
}

bool takes_running_texts(const ReuseOptions& reuse, const ReuseDecision& decision) {
  return takes_segments(reuse, decision) && !reuse.method->traits.learns && !reads_attention(reuse);
}

bool ends_at_segments(const ReuseOptions& reuse, const ReuseDecision& decision) {
  return takes_segments(reuse, decision) && !reuse.method->traits.exact;
}

void add_captured(KvLayout& layout, const ReuseOptions& reuse, const LayerRange& range, std::int32_t width) {
  const MethodTraits& traits = reuse.method->traits;
  const bool for_readers = reuse.record && (traits.segments || !traits.ahead);
  layout.received = for_readers && reads_attention(reuse);
  if (range.start > 0 && (for_readers || traits.hidden_states)) {
    layout.hidden_width = width;
    layout.hidden_layer = range.start;
  }
}

std::string reason_of(const ReuseDecision& decision) {
  if (decision.predicted < 0.0f) return {};
  return decision.basis +
         fmt::format("{:.0f} % of it reused; {:.2g} nats expected", 100 * decision.reuse, decision.predicted);
}

SparseLayers sparse_layers_of(const PromptSchedule& schedule, std::int32_t layers) {
  if (!schedule.detections.empty()) {
    const Detection& detection = schedule.detections.front();
    return {detection.layer + 1, detection.leave};
  }
  SparseLayers sparse{layers, 0};
  for (const ScheduledRow& row : schedule.rows) {
    if (row.path.enter == 0 && row.path.leave == layers) continue;
    sparse.begin = std::min(sparse.begin, row.path.enter);
    sparse.end = std::max(sparse.end, row.path.leave);
  }
  if (sparse.end == 0) sparse.end = layers;
  return sparse;
}

PromptSchedule make_schedule(const ReuseOptions& reuse, const ScheduleInput& input) {
  return make_schedule(reuse, as_asked(reuse), input);
}

PromptSchedule make_schedule(const ReuseOptions& reuse, const ReuseDecision& decision, const ScheduleInput& input) {
  const Method& method = *reuse.method;
  const LayerRange range = decision.range;
  if (method.traits.layers == Layers::detection && takes_segments(reuse, decision) && !range.valid(input.layers)) {
    throw std::invalid_argument(fmt::format("{}: expected layers start < detect < end < {}, found {}, {}, {}",
                                            method.name, input.layers, range.start, range.detect, range.end));
  }
  if (decision.exact && method.traits.segments && !decides(method)) return full_method().schedule({}, decision, input);
  if (method.traits.layers == Layers::group && !range.is_group(input.layers)) {
    throw std::invalid_argument(fmt::format("{}: expected a group of layers start < end < {}, found {} to {}",
                                            method.name, input.layers, range.start, range.end));
  }
  return method.schedule(reuse, decision, input);
}

MethodStates::MethodStates(std::span<const Method* const> methods, Backend& backend, const Model& model,
                           const StateBudget& budget) {
  for (const Method* method : methods) {
    if (method->make_state != nullptr && of(*method) == nullptr)
      entries_.push_back({method->make_state, method->make_state(backend, model, budget)});
  }
}

MethodState* MethodStates::of(const Method& method) const {
  for (const Entry& entry : entries_) {
    if (entry.make == method.make_state) return entry.state.get();
  }
  return nullptr;
}

void MethodStates::on_token(const WritingRequest& request) noexcept {
  if (MethodState* state = of(*request.reuse.method)) state->on_token(request);
}

void MethodStates::on_end(std::uint64_t request, std::span<const TokenId> answer, std::int32_t with_kv) {
  for (const Entry& entry : entries_) entry.state->on_end(request, answer, with_kv);
}

void MethodStates::on_bytes(const std::function<void(std::int64_t)>& changed) {
  for (const Entry& entry : entries_) entry.state->on_bytes(changed);
}

std::int64_t MethodStates::bytes() const {
  std::int64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.state->bytes();
  return bytes;
}

}  // namespace baton
