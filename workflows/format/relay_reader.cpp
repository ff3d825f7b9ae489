// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/relay_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>

namespace baton {
namespace {

constexpr std::int32_t kMaxHops = 4;  // what the levels measure is one hand-over; errors of several add up

class RelayReader {
 public:
  RelayReader(const Fields& fields, RelaySpec& relay, Diagnostics& diagnostics)
      : fields_(fields), relay_(relay), diagnostics_(diagnostics) {}

  void read() {
    const std::string method = fields_.text("method").value_or("auto");
    if (const Method* found = method == kMethodAlias.name ? &method_of(kMethodAlias.method) : find_method(method))
      relay_.method = found;
    ReuseOptions& options = relay_.options;
    read_layers(options);
    read_selection(options);
    options.correct = fields_.boolean("correct").value_or(options.correct);
    options.epic_tokens = integer(fields_, "epic_tokens", options.epic_tokens);
    options.cacheblend_share =
        fields_.number("cacheblend_share").value_or(static_cast<float>(options.cacheblend_share));
    if (fields_.text("cacheblend_score").value_or("values") == "cosine")
      options.cacheblend_score = ReuseOptions::Blend::cosine;
    if (const YamlNode* node = fields_.get("anchors")) read_anchors(Fields(*node), options.anchors);
    read_tolerance(options);
    read_ttft(options);
    options.prefix = fields_.boolean("prefix").value_or(options.prefix);
    options.min_tokens = integer(fields_, "min_tokens", options.min_tokens);
    options.max_hops = integer(fields_, "max_hops", decides(*relay_.method) ? kMaxHops : 0);
    read_reuse(options);
    read_verified();
    if (const YamlNode* memory = fields_.get("memory")) {
      relay_.device_bytes = Fields(*memory).size("device");
      relay_.host_bytes = Fields(*memory).size("host");
    }
  }

 private:
  using Keys = std::initializer_list<const char*>;

  static std::int32_t integer(const Fields& fields, const char* key, std::int32_t value) {
    return static_cast<std::int32_t>(fields.integer(key).value_or(value));
  }

  void error(const SourceLocation& where, const std::string& message, const std::string& help = {}) {
    diagnostics_.error(where, "E0412", "relay: " + message, help);
  }

  /// Reports those of the keys that are given although another setting leaves them without an effect.
  void refuse(const Fields& fields, Keys keys, const std::string& path, const std::string& because) {
    for (const char* key : keys) {
      if (fields.get(key) != nullptr)
        error(fields.where(key), fmt::format("`{}{}` has no effect {}", path, key, because));
    }
  }

  bool needs(Method::Layers form) const { return relay_.method->layers == form; }
  std::string method_name() const { return std::string(relay_.method->name); }

  void read_layers(ReuseOptions& options) {
    const YamlNode* node = fields_.get("layers");
    if (node == nullptr) return;
    const Fields layers(*node);
    relay_.layers_where = layers.get("end") != nullptr ? layers.get("end")->where() : fields_.where("layers");
    const auto layer = [&](const char* key) { return integer(layers, key, 0); };
    const bool group = needs(Method::Layers::group) || layers.get("detect") == nullptr;
    LayerRange& range = options.range;
    range = {layer("start"), layer(group ? "start" : "detect"), layer("end")};
    const SourceLocation where = fields_.where("layers");
    if (group && range.start >= range.end) {
      error(where, fmt::format("invalid layers: expected start < end, found start {}, end {}", range.start, range.end));
    } else if (group && needs(Method::Layers::detection)) {
      error(where, fmt::format("`layers` needs `detect` for method {}", method_name()),
            "the layer, between start and end, in which tokens are chosen");
    } else if (!group && (range.start >= range.detect || range.detect >= range.end)) {
      error(where, fmt::format("invalid layers: expected start < detect < end, found start {}, detect {}, end {}",
                               range.start, range.detect, range.end));
    }
  }

  void read_selection(ReuseOptions& options) {
    using Score = SelectionOptions::Score;
    SelectionOptions& selection = options.selection;
    const bool paper = fields_.get("preset") != nullptr;  // `paper` is the only one
    if (paper) {
      selection = SelectionOptions::by_paper();
      options.paper_layers = true;
      options.correct = false;
      if (relay_.method->id != MethodId::rectify)
        refuse(fields_, {"preset"}, "", fmt::format("on method {}; expected method rectify", method_name()));
    }
    const YamlNode* node = fields_.get("select");
    if (node == nullptr) return;
    const Fields select(*node);
    const bool thresholds = select.get("deviation") != nullptr || select.get("influence") != nullptr;
    const std::string score = select.text("score").value_or(thresholds ? "deviation" : "change");
    if (paper) {
      refuse(select, {"score", "share", "head", "all"}, "select.", "with `preset: paper`");
    } else if (score == "deviation") {
      selection = {};
    } else if (score == "entropy") {
      selection = {.suffix = 0, .head = 16, .share = 0.25, .score = Score::entropy};
    } else if (score == "author") {
      selection = SelectionOptions::by_author();
    }
    selection.deviation_threshold = select.number("deviation").value_or(selection.deviation_threshold);
    selection.influence_threshold = select.number("influence").value_or(selection.influence_threshold);
    selection.deviation = selection.deviation_threshold > 0.0f;
    selection.influence = selection.influence_threshold > 0.0f;
    selection.suffix = integer(select, "suffix", selection.suffix);
    selection.head = integer(select, "head", selection.head);
    selection.share = select.number("share").value_or(static_cast<float>(selection.share));
    selection.all = select.boolean("all").value_or(false);
    if (paper) return;
    options.correct = selection.score != Score::deviation;
    if (selection.all) {
      refuse(select, {"share", "deviation", "influence"}, "select.", "with `select.all`, which chooses every token");
    } else if (score != "deviation") {
      refuse(select, {"deviation", "influence"}, "select.", fmt::format("with `select.score: {}`", score));
      if (select.get("share") != nullptr && selection.share <= 0.0)
        error(select.where("share"),
              fmt::format("invalid select.share 0 with `select.score: {}`; expected a number above 0", score));
    } else if (selection.share > 0.0) {
      refuse(select, {"deviation", "influence"}, "select.", "with `select.share`, which replaces the thresholds");
    }
  }

  void read_tolerance(ReuseOptions& options) {
    if (relay_.method->id == MethodId::automatic) {
      options.tolerance = fields_.number("tolerance").value_or(options.tolerance);
      options.history = fields_.boolean("history").value_or(options.history);
    } else {
      refuse(fields_, {"tolerance", "history"}, "", fmt::format("on method {}; expected method auto", method_name()));
    }
  }

  void read_ttft(ReuseOptions& options) {
    if (!needs(Method::Layers::group)) {
      refuse(fields_, {"ttft"}, "", fmt::format("on method {}; expected method droidspeak", method_name()));
    } else if (fields_.has("layers")) {
      refuse(fields_, {"ttft"}, "", "with `layers`, which says what is recomputed");
    } else if (const auto ttft = fields_.duration("ttft")) {
      options.ttft_ms = static_cast<double>(ttft->count());
    }
  }

  /// Attention that an author's tokens received cannot be kept while tokens are dropped.
  void read_verified() {
    if (relay_.method->id != MethodId::verified) return;
    const std::string because = "on method verified, which chooses by change";
    refuse(fields_, {"preset"}, "", because);
    if (const YamlNode* node = fields_.get("select"))
      refuse(Fields(*node), {"score", "deviation", "influence", "suffix"}, "select.", because);
  }

  void read_reuse(ReuseOptions& options) {
    if (fields_.get("reuse") == nullptr) return;
    relay_.reuse_where = fields_.where("reuse");
    options.reuse = fields_.number("reuse").value_or(0.0f);
    if (!relay_.method->chosen_tokens)
      refuse(fields_, {"reuse"}, "",
             fmt::format("on method {}; expected method epic, cacheblend, rectify or verified", method_name()));
    const std::string because = "with `reuse`, which says how much is recomputed";
    refuse(fields_, {"epic_tokens", "cacheblend_share"}, "", because);
    if (const YamlNode* node = fields_.get("select")) refuse(Fields(*node), {"share", "all"}, "select.", because);
  }

  void read_anchors(const Fields& anchors, AnchorOptions& options) {
    using Gate = AnchorOptions::Gate;
    using Offsets = AnchorOptions::Offsets;
    using Text = AnchorOptions::Text;
    options.size = integer(anchors, "size", options.size);
    options.gamma = anchors.number("gamma").value_or(options.gamma);
    options.pool = anchors.text("pool").value_or(options.pool);
    if (anchors.get("compat") != nullptr) {
      options = AnchorOptions::by_paper(options);
      refuse(anchors, {"gate", "trust", "refuse", "recompute", "offsets", "text", "aligned", "rotate", "check"},
             "anchors.", "with `anchors.compat`, which sets it");
      return;
    }
    const std::string gate = anchors.text("gate").value_or("error");
    options.gate = gate == "none" ? Gate::none : gate == "entropy" ? Gate::entropy : Gate::error;
    const std::string offsets = anchors.text("offsets").value_or("weighted");
    options.offsets = offsets == "none" ? Offsets::none : offsets == "nearest" ? Offsets::nearest : Offsets::weighted;
    const std::string text = anchors.text("text").value_or("computed");
    options.text = text == "base" ? Text::base : text == "offset" ? Text::offset : Text::computed;
    options.check = integer(anchors, "check", options.check);
    options.trust = anchors.number("trust").value_or(options.trust);
    options.refuse = anchors.number("refuse").value_or(options.refuse);
    options.recompute = anchors.number("recompute").value_or(static_cast<float>(options.recompute));
    options.aligned = anchors.boolean("aligned").value_or(options.aligned);
    options.rotate = anchors.boolean("rotate").value_or(options.rotate);
    const std::string because = fmt::format("with `anchors.gate: {}`", gate);
    if (options.gate != Gate::entropy) refuse(anchors, {"gamma"}, "anchors.", because);
    if (options.gate != Gate::error) refuse(anchors, {"trust", "refuse", "recompute"}, "anchors.", because);
    if (options.refuse < options.trust) {
      error(anchors.where(anchors.has("refuse") ? "refuse" : "trust"),
            fmt::format("anchors.refuse {} is below anchors.trust {}", options.refuse, options.trust));
    }
  }

  const Fields& fields_;
  RelaySpec& relay_;
  Diagnostics& diagnostics_;
};

}  // namespace

void read_relay(const Fields& file, RelaySpec& relay, Diagnostics& diagnostics) {
  const YamlNode* node = file.get("relay");
  if (node == nullptr) return;
  const Fields fields(*node);
  relay.where = fields.get("method") != nullptr ? fields.get("method")->where() : file.where("relay");
  RelayReader(fields, relay, diagnostics).read();
}

}  // namespace baton
