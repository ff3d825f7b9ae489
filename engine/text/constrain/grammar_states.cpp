// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/grammar_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/base/random.h"

namespace baton {
namespace {

constexpr std::size_t kMaxPlaces = 2048;  // in one state; more are an ambiguity that grows with the text
constexpr std::size_t kManyStates = 10'000;
constexpr std::size_t kCrowdedStates = 20'000;
constexpr std::size_t kMaxWork = 8'000'000;  // between two calls of clear(); a visit takes up to 0.2 microseconds
constexpr std::size_t kMaxStates = 100'000;  // between two calls of clear()
constexpr std::size_t kCrowdedBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxStateBytes = std::size_t{256} << 20;  // states between two calls of clear()

// What checking a whole text may cost, in visits.
constexpr std::size_t kPlacesPerByte = 16;
constexpr std::size_t kFreePlaces = 2'000'000;

/// The memory of a place, and of the frame that may be its own.
constexpr std::size_t kPlaceBytes = sizeof(GrammarPlace) + sizeof(GrammarFrame) + 2 * sizeof(void*);

using Stack = std::shared_ptr<const GrammarFrame>;

bool same(const Stack& a, const Stack& b) {
  const GrammarFrame *one = a.get(), *other = b.get();
  while (one != other) {
    if (one == nullptr || other == nullptr || one->hash != other->hash || one->then != other->then) return false;
    one = one->below.get();
    other = other->below.get();
  }
  return true;
}

std::uint64_t hash_of(const Stack& stack) { return stack ? stack->hash : 0; }

std::uint64_t combined(std::uint64_t hash, std::uint64_t value) {
  return mixed_bits(hash ^ (value + 0x9E3779B97F4A7C15));
}

bool same(const GrammarPlaces& a, const GrammarPlaces& b) {
  return a.ends == b.ends && std::equal(a.places.begin(), a.places.end(), b.places.begin(), b.places.end(),
                                        [](const GrammarPlace& x, const GrammarPlace& y) {
                                          return x.node == y.node && same(x.stack, y.stack);
                                        });
}

}  // namespace

/// Collects the places that are reached without a byte.
class GrammarStates::Closure {
 public:
  explicit Closure(const Grammar& grammar) : grammar_(grammar) {}

  void add(std::int32_t node, Stack stack) {
    todo_.push_back({node, std::move(stack)});
    while (!todo_.empty()) {
      const GrammarPlace at = std::move(todo_.back());
      todo_.pop_back();
      visit(at);
    }
  }

  std::size_t work() const { return visits_; }

  std::shared_ptr<const GrammarPlaces> places() {
    auto out = std::make_shared<GrammarPlaces>();
    out->ends = ends_;
    for (auto& [hash, place] : seen_) {
      if (!grammar_.node(place.node).edges.empty()) out->places.push_back(place);
    }
    std::sort(out->places.begin(), out->places.end(), [](const GrammarPlace& a, const GrammarPlace& b) {
      return std::pair(a.node, hash_of(a.stack)) < std::pair(b.node, hash_of(b.stack));
    });
    out->hash = out->ends ? 1 : 0;
    for (const GrammarPlace& place : out->places)
      out->hash = combined(combined(out->hash, static_cast<std::uint64_t>(place.node)), hash_of(place.stack));
    return out;
  }

 private:
  static std::int32_t depth_of(const Stack& stack) { return stack ? stack->depth : 0; }

  void visit(const GrammarPlace& at) {
    if (++visits_ > kMaxWork) throw std::runtime_error("the answer's constraint is too ambiguous");
    const Grammar::Node& node = grammar_.node(at.node);
    if (depth_of(at.stack) + node.need > grammar_.max_depth()) return;  // it could not end within the depth
    const std::uint64_t hash = combined(static_cast<std::uint64_t>(at.node), hash_of(at.stack));
    for (auto [found, end] = seen_.equal_range(hash); found != end; ++found) {
      if (found->second.node == at.node && same(found->second.stack, at.stack)) return;
    }
    if (seen_.size() == 4 * kMaxPlaces) throw std::runtime_error("the answer's constraint is too ambiguous");
    seen_.emplace(hash, at);
    for (const std::int32_t target : node.empties) todo_.push_back({target, at.stack});
    for (const Grammar::Call& call : node.calls) enter(call, at.stack);
    if (!node.ends) return;
    if (at.stack)
      todo_.push_back({at.stack->then, at.stack->below});
    else
      ends_ = true;
  }

  /// A call that is the last thing in its rule opens no frame, so that right recursion needs no depth.
  void enter(const Grammar::Call& call, const Stack& stack) {
    if (grammar_.node(call.then).only_ends) return todo_.push_back({grammar_.start(call.rule), stack});
    const std::int32_t depth = depth_of(stack);
    if (depth + grammar_.node(call.then).need > grammar_.max_depth() || depth == grammar_.max_depth()) return;
    const std::uint64_t hash = combined(hash_of(stack), static_cast<std::uint64_t>(call.then));
    todo_.push_back({grammar_.start(call.rule),
                     std::make_shared<const GrammarFrame>(GrammarFrame{call.then, depth + 1, hash, stack})});
  }

  const Grammar& grammar_;
  std::vector<GrammarPlace> todo_;
  std::unordered_multimap<std::uint64_t, GrammarPlace> seen_;
  std::size_t visits_ = 0;
  bool ends_ = false;
};

GrammarStates::GrammarStates(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {}

GrammarStates::State* GrammarStates::start() {
  Closure closure(*grammar_);
  closure.add(grammar_->start(0), nullptr);
  return find(closure.places());
}

GrammarStates::State* GrammarStates::find(std::shared_ptr<const GrammarPlaces> places) {
  for (auto [found, end] = by_hash_.equal_range(places->hash); found != end; ++found) {
    if (same(*found->second->places, *places)) return found->second;
  }
  if (places->places.size() > kMaxPlaces) throw std::runtime_error("the answer's constraint is too ambiguous");
  if (states_.size() == kMaxStates)
    throw std::runtime_error(fmt::format("the answer's constraint needs more than {} states in a step", kMaxStates));
  bytes_ += sizeof(State) + grammar_->classes() * sizeof(void*) + places->places.size() * kPlaceBytes;
  if (bytes_ > kMaxStateBytes)
    throw std::runtime_error(
        fmt::format("the answer's constraint needs more than {} MiB for the states of a step", kMaxStateBytes >> 20));
  State& state = states_.emplace_back();
  state.next.assign(grammar_->classes(), nullptr);
  state.id = static_cast<std::uint32_t>(states_.size() - 1);
  state.places = std::move(places);
  by_hash_.emplace(state.places->hash, &state);
  return &state;
}

GrammarStates::State* GrammarStates::make_next(State* state, std::uint8_t byte) {
  Closure closure(*grammar_);
  for (const GrammarPlace& place : state->places->places) {
    for (const Grammar::Edge& edge : grammar_->node(place.node).edges) {
      if (edge.low <= byte && byte <= edge.high) closure.add(edge.target, place.stack);
    }
  }
  work_ += closure.work();
  if (work_ > kMaxWork) throw std::runtime_error("the answer's constraint is too ambiguous: a step takes too long");
  State* next = find(closure.places());
  state->next[grammar_->byte_class(byte)] = next;
  return next;
}

void GrammarStates::find_most(State* state) {
  if (state->most != nullptr) return;
  std::unordered_map<State*, std::array<std::uint64_t, 2>> leads;
  for (unsigned byte = 0; byte < 128; ++byte) {
    State* target = next(state, static_cast<std::uint8_t>(byte));
    if (!target->dead()) leads[target][byte / 64] |= std::uint64_t{1} << (byte % 64);
  }
  int best = -1;
  for (const auto& [target, bytes] : leads) {
    const int count = std::popcount(bytes[0]) + std::popcount(bytes[1]);
    if (count < best || (count == best && target->id > state->most->id)) continue;
    best = count;
    state->most = target;
    state->to_most = bytes;
  }
  if (state->most == nullptr) state->most = state;  // with no bytes
}

const GrammarStates::FreeRun& GrammarStates::free_run(State* state) {
  static const FreeRun none;
  if (state->run != nullptr) return *state->run;
  if (states_.size() > kManyStates) return none;  // looking ahead would make many more
  find_most(state);
  FreeRun run{state->to_most, 1};
  // It goes on while at least half of the bytes stay: few longer texts are worth less than many short ones.
  const int enough = (std::popcount(run.ascii[0]) + std::popcount(run.ascii[1]) + 1) / 2;
  for (State* at = state->most; run.length < kMaxRun; ++run.length, at = at->most) {
    find_most(at);
    const std::array<std::uint64_t, 2> both{run.ascii[0] & at->to_most[0], run.ascii[1] & at->to_most[1]};
    if (enough == 0 || std::popcount(both[0]) + std::popcount(both[1]) < enough) break;
    run.ascii = both;
  }
  state->run = std::make_unique<const FreeRun>(run);
  return *state->run;
}

void GrammarStates::clear() {
  by_hash_.clear();
  states_.clear();
  work_ = bytes_ = 0;
}

bool GrammarStates::crowded() const {
  return states_.size() > kCrowdedStates || bytes_ > kCrowdedBytes || work_ > kMaxWork / 2;
}

bool accepts(const Grammar& grammar, std::string_view text) {
  // The states do not outlive the call, so they need not own the grammar.
  GrammarStates states(std::shared_ptr<const Grammar>(std::shared_ptr<const Grammar>(), &grammar));
  GrammarStates::State* state = states.start();
  std::size_t work = 0;  // before the last clear()
  for (const char byte : text) {
    state = states.next(state, static_cast<std::uint8_t>(byte));
    if (state->dead()) return false;
    if (work + states.work() > kPlacesPerByte * text.size() + kFreePlaces)
      throw std::runtime_error(
          fmt::format("the check by the grammar needs more steps than a text of {} bytes may cost", text.size()));
    if (!states.crowded()) continue;
    work += states.work();
    const std::shared_ptr<const GrammarPlaces> places = state->places;
    states.clear();
    state = states.find(places);
  }
  return state->places->ends;
}

}  // namespace baton
