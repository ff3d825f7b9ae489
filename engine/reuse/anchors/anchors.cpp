// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/anchors/anchors.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/errors.h"
#include "engine/kv/segment.h"
#include "engine/reuse/anchors/anchor_store.h"
#include "engine/reuse/between_models.h"
#include "engine/reuse/method.h"
#include "engine/reuse/rectify/rectify.h"

namespace baton {

ConstTensorView AnchorMemory::Layers::operator()(std::int32_t layer) const {
  const std::int64_t width = 2 * shape->layer(layer), before = 2 * rows * shape->before(layer);
  return BasicView<const std::byte>{data + before * static_cast<std::int64_t>(sizeof(std::uint16_t)), DType::bf16, rows,
                                    width, width};
}

bool AnchorMemory::Copy::is_used_by(const Anchor* anchor) const {
  return std::any_of(users.begin(), users.end(), [&](const auto& user) { return user.lock().get() == anchor; });
}

bool AnchorMemory::Copy::is_unused() const {
  return std::all_of(users.begin(), users.end(), [](const auto& user) { return user.expired(); });
}

const std::byte* AnchorMemory::copy_of(const SharedAnchor& anchor, std::span<const std::uint16_t> values) {
  if (host_memory_ || values.empty()) return std::as_bytes(values).data();
  auto known = copies_.find(values.data());
  if (known != copies_.end() && known->second.is_used_by(anchor.get())) return known->second.memory.data();
  std::erase_if(copies_, [](const auto& entry) { return entry.second.is_unused(); });
  known = copies_.find(values.data());
  if (known == copies_.end()) {
    Copy copy{{}, device_.allocate_uninitialized(values.size_bytes())};
    device_.copy_to_device(copy.memory.data(), std::as_bytes(values));
    known = copies_.emplace(values.data(), std::move(copy)).first;
  }
  std::erase_if(known->second.users, [](const auto& user) { return user.expired(); });
  known->second.users.push_back(anchor);
  return known->second.memory.data();
}

void AnchorMemory::upload(const SharedAnchor& anchor) {
  copy_of(anchor, anchor->offset);
  copy_of(anchor, anchor->text_kv);
}

AnchorMemory::Layers AnchorMemory::offset(const SharedAnchor& anchor) {
  return {copy_of(anchor, anchor->offset), anchor->length, &anchor->shape};
}

AnchorMemory::Layers AnchorMemory::text(const SharedAnchor& anchor) {
  return {copy_of(anchor, anchor->text_kv), anchor->following, &anchor->shape};
}

namespace {

constexpr std::size_t kMaxFollowed = 64;  // maximum anchors that one answer is compared with while it is decoded

}  // namespace

AnchorTurn Anchors::look(const PromptToPlace& prompt, const AnchorOptions& options) {
  const std::span<const std::shared_ptr<const Segment>> segments = prompt.segments;
  AnchorTurn turn;
  turn.slots.resize(prompt.parts.size());
  turn.reader = prompt.reader;
  const std::vector<PlaceKey> places = places_of(prompt.parts, options.pool);
  std::vector<SharedText> before;
  std::int32_t at = 0;
  for (std::size_t i = 0; i < prompt.parts.size(); ++i) {
    const PromptPart& part = prompt.parts[i];
    const std::int32_t begin = at;
    at += static_cast<std::int32_t>(part.tokens.size());
    if (part.slot.empty()) continue;
    const SharedText text = sketcher_.sketch(
        std::span(part.tokens)
            .first(segments[i] ? static_cast<std::size_t>(segments[i]->length()) : part.tokens.size()));
    if (segments[i]) {
      AnchorSlot& slot = turn.slots[i].emplace();
      slot.begin = begin;
      slot.segment = segments[i];
      slot.text = text;
      slot.before = before;
      slot.key = places[i];
      for (std::size_t next = i + 1; next < prompt.parts.size() && prompt.parts[next].slot.empty(); ++next)
        slot.following += static_cast<std::int32_t>(prompt.parts[next].tokens.size());
      // The last token of a truncated answer has no KV, so the text after the answer does not begin where the KV ends.
      if (segments[i]->length() < static_cast<std::int32_t>(part.tokens.size())) slot.following = 0;
    }
    before.push_back(text);
  }
  Pools pools(turn.slots.size());
  for (std::size_t i = 0; i < pools.size(); ++i) {
    if (turn.slots[i]) pools[i] = store_.ask(turn.slots[i]->key);
  }
  if (options.aligned) compare(turn, pools);
  bool check = false;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    std::optional<AnchorSlot>& slot = turn.slots[i];
    if (!slot) continue;
    const AnchorPoolView& pool = pools[i];
    slot->choice = choose_anchors(options, pool, slot->text, slot->before, memo_);
    turn.learning = turn.learning || slot->choice.kind == AnchorChoice::Kind::learn;
    check = check || (options.check > 0 && pool.since_learning + 1 >= static_cast<std::uint64_t>(options.check));
  }
  for (std::optional<AnchorSlot>& slot : turn.slots) {
    if (!slot) continue;
    if (!turn.learning && check) slot->choice.reason = "computed to measure the pool's error";
    if (turn.learning && slot->choice.kind != AnchorChoice::Kind::learn)
      slot->choice.reason = "computed, because another text of the prompt becomes an anchor";
    if (turn.learning || check) {
      store_.learning(slot->key);
    } else if (slot->choice.kind != AnchorChoice::Kind::refuse) {
      for (std::size_t a = 0; a < slot->choice.anchors.size(); ++a) ++slot->choice.anchors[a]->uses;
    }
  }
  turn.learning = turn.learning || check;
  return turn;
}

/// Aligns, in one batch, all pairs of texts that the choice will ask for and that are not aligned yet.
void Anchors::compare(const AnchorTurn& turn, const Pools& pools) {
  memo_.trim();
  std::map<const SketchedText*, std::vector<std::int32_t>> rows;
  std::vector<std::pair<SharedText, SharedText>> texts;
  const auto want = [&](const SharedText& text, const SharedText& other) {
    for (const SharedText& one : {text, other}) {
      if (!rows.contains(one.get())) rows[one.get()] = sketcher_.rows_of(*one);
      if (rows[one.get()].size() != one->tokens.size()) return;  // text of a file with tokens of another vocabulary
    }
    if (memo_.expects(text, other)) texts.emplace_back(text, other);
  };
  for (std::size_t i = 0; i < pools.size(); ++i) {
    for (const SharedAnchor& anchor : pools[i].anchors) {
      const AnchorSlot& slot = *turn.slots[i];
      want(slot.text, anchor->text);
      for (std::size_t b = 0; b < slot.before.size() && b < anchor->before.size(); ++b)
        want(slot.before[b], anchor->before[b]);
    }
  }
  if (texts.empty()) return;
  std::vector<TextPair> pairs;
  for (const auto& [text, other] : texts) pairs.push_back({rows[text.get()], rows[other.get()]});
  try {
    std::vector<Alignment> alignments = backend_.align(sketcher_.table(), pairs);
    for (std::size_t i = 0; i < texts.size(); ++i) memo_.add(texts[i].first, texts[i].second, std::move(alignments[i]));
  } catch (const BackendError&) {  // without device memory, the pairs are aligned one by one on the host
  }
}

void Anchors::insert(RopeTable& angles, KvCache& cache, const AnchorSlot& slot, std::int32_t first,
                     const AnchorOptions& options, LayerSpan layers) {
  const auto n = static_cast<std::size_t>(slot.length() - first);
  if (slot.length() <= first) return;
  std::vector<std::vector<std::int32_t>> rows;
  if (options.offsets != AnchorOptions::Offsets::none) {
    for (std::size_t a = 0; a < slot.choice.anchors.size(); ++a) {
      std::vector<std::int32_t>& row = rows.emplace_back();
      for (std::size_t i = 0; i < n; ++i)
        row.push_back(std::min(slot.choice.alignments[a]->to[static_cast<std::size_t>(first) + i],
                               slot.choice.anchors[a]->length - 1));
    }
  }
  std::vector<CorrectionSource> sources;
  for (std::size_t a = 0; a < rows.size(); ++a) {
    const SharedAnchor& anchor = slot.choice.anchors[a];
    sources.push_back({memory_.offset(anchor), rows[a], slot.choice.weights[a], 1});
  }
  const std::int32_t turned = options.rotate ? slot.begin : slot.segment->position;
  place_corrected(backend_, angles, cache,
                  {slot.begin + first, slot.segment.get(), first, static_cast<std::int32_t>(n), layers}, turned + first,
                  sources);
}

void Anchors::insert_text(RopeTable& angles, KvCache& cache, const AnchorSlot& slot, const AnchorOptions& options) {
  if (slot.following == 0) return;
  std::vector<std::int32_t> row(static_cast<std::size_t>(slot.following));
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::int32_t>(i);
  // The weights sum to 1, so the text's own KV cancels out and the mean of its KV in the anchors' prompts is left.
  std::vector<CorrectionSource> sources;
  for (std::size_t a = 0; a < slot.choice.anchors.size(); ++a) {
    const SharedAnchor& anchor = slot.choice.anchors[a];
    const bool base = options.text == AnchorOptions::Text::base;
    sources.push_back({memory_.text(anchor), row, base ? 1.0f : slot.choice.weights[a], 0});
    if (base) break;
  }
  const std::int32_t begin = slot.begin + slot.length();
  place_corrected(backend_, angles, cache, {begin, nullptr, 0, slot.following}, begin, sources);
}

void Anchors::learn(const AnchorTurn& turn, const KvCache& cache, const AnchorOptions& options) {
  for (const std::optional<AnchorSlot>& slot : turn.slots) {
    if (!slot) continue;
    AnchorSample sample;
    sample.key = slot->key;
    sample.reader = turn.reader;
    sample.size = options.size;
    sample.shape = width_of(cache.layout());
    sample.text = slot->text;
    sample.before = slot->before;
    sample.length = slot->length();
    sample.truth = kv_on_host(backend_, cache, slot->begin, slot->length());
    sample.base = kv_on_host(backend_, *slot->segment);
    sample.generated = !slot->segment->entropy.empty();
    sample.following = slot->following;
    sample.text_kv = kv_on_host(backend_, cache, slot->begin + slot->length(), slot->following);
    sample.choice = slot->choice;
    store_.learn(std::move(sample));
  }
}

/// Where it fails, some aligners have tokens that others lack: the next call begins anew, with all of the answer.
void Anchors::follow(std::uint64_t id, const std::string& slot, const std::string& pool,
                     std::span<const TokenId> answer) noexcept {
  if (!try_to([&] { compare_ahead(id, slot, pool, answer); })) following_.erase(id);
}

void Anchors::compare_ahead(std::uint64_t id, const std::string& slot, const std::string& pool,
                            std::span<const TokenId> answer) {
  const auto [entry, added] = following_.try_emplace(id);
  Follower& follower = entry->second;
  if (added) {
    for (const SharedAnchor& anchor : store_.anchors(slot, pool, kMaxFollowed)) {
      try {
        memory_.upload(anchor);
      } catch (const BackendError&) {  // without memory now, the readers will upload the anchor when they need it
      }
      if (!compares_ahead_) continue;
      const bool known = std::any_of(follower.others.begin(), follower.others.end(),
                                     [&](const SharedText& text) { return text->hash == anchor->text->hash; });
      if (known) continue;
      follower.others.push_back(anchor->text);
      follower.aligners.emplace_back(anchor->text->sketch);
    }
  }
  if (follower.aligners.empty() || answer.size() <= follower.tokens) return;
  const SharedText fresh = sketcher_.sketch(answer.subspan(follower.tokens));
  for (std::int64_t i = 0; i < fresh->size(); ++i) {
    for (Aligner& aligner : follower.aligners) aligner.push(fresh->sketch.data() + i * SketchedText::kSketch);
  }
  follower.tokens = answer.size();
}

void Anchors::ended(std::uint64_t id, std::span<const TokenId> answer, std::int32_t with_kv) {
  const auto found = following_.extract(id);
  if (found.empty()) return;
  const Follower& follower = found.mapped();
  if (with_kv == static_cast<std::int32_t>(answer.size()) && !answer.empty()) {
    const SharedText text = sketcher_.sketch(answer);  // also for the readers: tokens are projected once
    // The compared text must equal the text that readers get; a stop string may have cut it.
    for (std::size_t i = 0; i < follower.aligners.size() && follower.tokens == answer.size(); ++i)
      memo_.add(text, follower.others[i], follower.aligners[i].result());
    memo_.trim();
  }
}

namespace {

/// The texts of one prompt, with the anchors that correct them.
class AnchoredTexts : public PromptTexts {
 public:
  AnchoredTexts(Anchors& anchors, AnchorTurn turn, const AnchorOptions& options)
      : anchors_(anchors), turn_(std::move(turn)), options_(options) {}

  bool place(std::size_t part, PlacedSegment& placed, PartUse& use) override {
    const AnchorSlot& slot = *turn_.slots[part];
    const AnchorChoice& choice = slot.choice;
    use.reason = choice.reason;
    use.numbers = {{"count", static_cast<double>(choice.anchors.size())},
                   {"ambiguity", choice.ambiguity},
                   {"distance", choice.distance},
                   {"predicted_error", choice.error}};
    if (turn_.learning || choice.kind == AnchorChoice::Kind::refuse) return false;
    if (choice.kind == AnchorChoice::Kind::refine) {
      SelectionOptions uncertain;
      uncertain.share = options_.recompute;
      uncertain.suffix = 0;
      const std::span<const float> entropy = slot.segment->entropy;
      const std::vector<float> mismatch =
          choice.mismatch(slot.length());  // texts that were not generated have no entropy
      placed.recompute = best_share(uncertain, entropy.empty() ? mismatch : entropy);
    }
    return true;
  }
  std::int32_t following(std::size_t part) const override {
    if (options_.text == AnchorOptions::Text::computed) return 0;
    const AnchorSlot& slot = *turn_.slots[part];
    // An anchor that was cut off has no KV of the text behind it.
    const bool known = std::all_of(slot.choice.anchors.begin(), slot.choice.anchors.end(),
                                   [&](const SharedAnchor& anchor) { return anchor->following == slot.following; });
    return known ? slot.following : 0;
  }
  bool insert(RopeTable& angles, KvCache& cache, std::size_t part, const PlacedSegment& placed, std::int32_t first,
              LayerSpan layers) override {
    if (placed.segment != nullptr) {
      anchors_.insert(angles, cache, *turn_.slots[part], first, options_, layers);
    } else {
      anchors_.insert_text(angles, cache, *turn_.slots[part], options_);
    }
    return true;
  }
  void release() override {
    if (!turn_.learning) turn_.slots.clear();
  }
  void learn(const KvCache& cache) override {
    if (turn_.learning) anchors_.learn(turn_, cache, options_);
  }

 private:
  Anchors& anchors_;
  AnchorTurn turn_;
  AnchorOptions options_;
};

class AnchorState : public MethodState {
 public:
  AnchorState(Backend& backend, const Model& model, const StateBudget& budget)
      : anchors_(backend, model, budget.bytes) {}

  std::unique_ptr<PromptTexts> look(const PromptToPlace& prompt) override {
    const AnchorOptions& options = own<AnchorOptions>(prompt.reuse);
    return std::make_unique<AnchoredTexts>(anchors_, anchors_.look(prompt, options), options);
  }
  void on_token(const WritingRequest& request) noexcept override {
    const AnchorOptions& options = own<AnchorOptions>(request.reuse);
    if (!request.slot.empty() && options.aligned)
      anchors_.follow(request.id, request.slot, options.pool, request.answer);
  }
  void on_end(std::uint64_t request, std::span<const TokenId> answer, std::int32_t with_kv) override {
    anchors_.ended(request, answer, with_kv);
  }
  std::int64_t bytes() const override { return anchors_.store().stats().bytes; }
  void on_bytes(std::function<void(std::int64_t)> changed) override { anchors_.store().on_bytes(std::move(changed)); }
  void on_sample(std::function<void(const PlaceSample&)> seen) override { anchors_.store().on_sample(std::move(seen)); }
  void flush() const override { anchors_.store().flush(); }
  void load(const std::filesystem::path& folder, const Model& model) override {
    const std::filesystem::path file = file_in(folder, model);
    std::error_code missing;
    if (!std::filesystem::exists(file, missing)) return;
    load_anchors(file, kv_key_of(model), width_of(model.kv_layout()), anchors_.store());
  }
  void save(const std::filesystem::path& folder, const Model& model) const override {
    if (anchors_.store().stats().learned == 0) return;
    std::filesystem::create_directories(folder);
    save_anchors(file_in(folder, model), kv_key_of(model), anchors_.store());
  }
  AnchorStore& store() { return anchors_.store(); }

 private:
  static std::filesystem::path file_in(const std::filesystem::path& folder, const Model& model) {
    return folder / (kv_key_of(model) + ".anchors");
  }

  Anchors anchors_;
};

PromptSchedule anchors_schedule(const ReuseOptions&, const ReuseDecision&, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment& placed, std::int32_t begin, std::int32_t end) {
                         for (std::int32_t at = begin; at < end; ++at) {
                           const auto token = static_cast<std::size_t>(at - placed.begin);
                           if (token < placed.recompute.size() && placed.recompute[token])
                             builder.add(at, {0, input.layers, -1, true});
                         }
                       });
}

std::string anchors_problem(const ReuseOptions& reuse) {
  std::string problem;
  expect_fraction(problem, "anchors.recompute", own<AnchorOptions>(reuse).recompute);
  expect_not_negative(problem, "anchors.gamma", own<AnchorOptions>(reuse).gamma);
  return problem;
}

std::unique_ptr<MethodState> make_anchor_state(Backend& backend, const Model& model, const StateBudget& budget) {
  return std::make_unique<AnchorState>(backend, model, budget);
}

std::vector<MethodKey> anchors_keys() {
  using Type = MethodKey::Type;
  return {
      {.name = "anchors.size",
       .type = Type::integer,
       .low = 1,
       .high = 10000,
       .standard = "20",
       .doc = "Maximum number of anchors in one pool; a pool belongs to one placeholder of one prompt.",
       .lab = true},
      {.name = "anchors.gate",
       .type = Type::choice,
       .words = {"error", "entropy", "none"},
       .standard = "error",
       .doc = "Which corrections are trusted: those with a small expected error (`error`), those whose weights "
              "have a small entropy (`entropy`, after KVComm's eq. 5), or all (`none`).",
       .lab = true},
      {.name = "anchors.trust",
       .type = Type::number,
       .high = 100,
       .standard = "0.1",
       .doc = "Gate `error`: up to this expected relative error of K and V a placeholder is corrected and none "
              "of its tokens is recomputed.",
       .lab = true},
      {.name = "anchors.refuse",
       .type = Type::number,
       .high = 100,
       .standard = "0.16",
       .doc = "Gate `error`: above this error a placeholder is computed in full; between `trust` and `refuse` "
              "only its uncertain tokens are recomputed.",
       .lab = true},
      {.name = "anchors.recompute",
       .type = Type::number,
       .high = 1,
       .standard = "0.15",
       .doc = "The fraction of a placeholder's tokens that is recomputed between `trust` and `refuse`.",
       .lab = true},
      {.name = "anchors.gamma",
       .type = Type::number,
       .high = 100,
       .standard = "0.3",
       .doc = "Gate `entropy`: weights of more than gamma log(anchors) nats make a text a new anchor.",
       .lab = true},
      {.name = "anchors.offsets",
       .type = Type::choice,
       .words = {"weighted", "nearest", "none"},
       .standard = "weighted",
       .doc = "Corrects by all anchors, weighted by their similarity (`weighted`), by the nearest anchor alone "
              "(`nearest`), or not at all (`none`).",
       .lab = true},
      {.name = "anchors.text",
       .type = Type::choice,
       .words = {"computed", "offset", "base"},
       .standard = "computed",
       .doc = "What happens to fixed text behind a placeholder: it is computed (`computed`), corrected like "
              "the placeholder (`offset`), or reused as first seen (`base`).",
       .lab = true},
      {.name = "anchors.aligned",
       .type = Type::boolean,
       .standard = "true",
       .doc = "Tokens are matched to those of an anchor by edit distance; `false`: by index, as in the paper.",
       .lab = true},
      {.name = "anchors.rotate",
       .type = Type::boolean,
       .standard = "true",
       .doc = "`false`: keys stay at their author's positions.",
       .lab = true},
      {.name = "anchors.check",
       .type = Type::integer,
       .standard = "32",
       .doc = "One turn in this many is computed in full, to measure the error; 0: none.",
       .lab = true},
      {.name = "anchors.pool",
       .type = Type::text,
       .doc = "Name of the pools; pools of different names share no anchors.",
       .lab = true},
  };
}

void read_anchors(GivenKeys& given, ReuseOptions& reuse) {
  using Gate = AnchorOptions::Gate;
  using Offsets = AnchorOptions::Offsets;
  using Text = AnchorOptions::Text;
  AnchorOptions& options = own<AnchorOptions>(reuse);
  const auto integer = [&](std::string_view name, std::int32_t value) {
    return static_cast<std::int32_t>(given.integer(name).value_or(value));
  };
  options.size = integer("anchors.size", options.size);
  options.gamma = given.number("anchors.gamma").value_or(options.gamma);
  options.pool = given.text("anchors.pool").value_or(options.pool);
  const std::string gate = given.text("anchors.gate").value_or("error");
  options.gate = gate == "none" ? Gate::none : gate == "entropy" ? Gate::entropy : Gate::error;
  const std::string offsets = given.text("anchors.offsets").value_or("weighted");
  options.offsets = offsets == "none" ? Offsets::none : offsets == "nearest" ? Offsets::nearest : Offsets::weighted;
  const std::string text = given.text("anchors.text").value_or("computed");
  options.text = text == "base" ? Text::base : text == "offset" ? Text::offset : Text::computed;
  options.check = integer("anchors.check", options.check);
  options.trust = given.number("anchors.trust").value_or(options.trust);
  options.refuse = given.number("anchors.refuse").value_or(options.refuse);
  options.recompute = given.number("anchors.recompute").value_or(static_cast<float>(options.recompute));
  options.aligned = given.boolean("anchors.aligned").value_or(options.aligned);
  options.rotate = given.boolean("anchors.rotate").value_or(options.rotate);
  const std::string because = fmt::format("with `anchors.gate: {}`", gate);
  if (options.gate != Gate::entropy) given.refuse({"anchors.gamma"}, because);
  if (options.gate != Gate::error) given.refuse({"anchors.trust", "anchors.refuse", "anchors.recompute"}, because);
  if (options.refuse < options.trust) {
    given.error(given.has("anchors.refuse") ? "anchors.refuse" : "anchors.trust",
                fmt::format("anchors.refuse {} is below anchors.trust {}", options.refuse, options.trust));
  }
}

constexpr Method kAnchors = {
    .name = "anchors",
    .summary = "KV is corrected by the change that similar texts had in the same place before.",
    .traits = {.segments = true, .learns = true},
    .schedule = anchors_schedule,
    .problem = anchors_problem,
    .make_state = make_anchor_state,
    .observe = [](ReuseOptions& reuse) { reuse.own = AnchorOptions{.size = 1, .check = 1}; },
    .keys = anchors_keys,
    .read = read_anchors};

}  // namespace

const Method& anchors_method() { return kAnchors; }

AnchorStore& anchor_store_of(MethodState& state) { return dynamic_cast<AnchorState&>(state).store(); }

}  // namespace baton
