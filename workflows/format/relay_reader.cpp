// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/readers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/registry.h"
#include "engine/reuse/method.h"

namespace baton {
namespace {

constexpr std::int32_t kMaxHops = 4;  // what the levels measure is one hand-over; errors of several add up

/// The keys under `relay` and `relay.lab` by the names that methods declare: "tolerance", "select.share".
class RelayKeys : public GivenKeys {
 public:
  RelayKeys(const YamlNode& relay, Diagnostics& diagnostics) : relay_(relay), diagnostics_(diagnostics) {
    if (const YamlNode* lab = Fields(relay).get("lab")) lab_ = lab;
  }

  const YamlEntry* entry(std::string_view name) const {
    const std::size_t dot = name.find('.');
    const std::string_view first = name.substr(0, dot);
    const YamlEntry* found = relay_.entry(first);
    if (found == nullptr && lab_ != nullptr) found = lab_->entry(first);
    if (found == nullptr || dot == std::string_view::npos) return found;
    return found->value.broken ? nullptr : found->value.entry(name.substr(dot + 1));
  }

  bool has(std::string_view name) const override { return value(name) != nullptr; }
  std::optional<std::string> text(std::string_view name) const override {
    const YamlNode* node = value(name);
    return node == nullptr ? std::nullopt : std::optional(node->text);
  }
  std::optional<std::int64_t> integer(std::string_view name) const override {
    const YamlNode* node = value(name);
    return node == nullptr ? std::nullopt : integer_of(node->text);
  }
  std::optional<float> number(std::string_view name) const override {
    const YamlNode* node = value(name);
    return node == nullptr ? std::nullopt : std::optional(static_cast<float>(*number_of(node->text)));
  }
  std::optional<bool> boolean(std::string_view name) const override {
    const YamlNode* node = value(name);
    return node == nullptr ? std::nullopt : std::optional(node->text[0] == 't' || node->text[0] == 'T');
  }
  std::optional<double> milliseconds(std::string_view name) const override {
    const YamlNode* node = value(name);
    if (node == nullptr) return std::nullopt;
    if (node->text == "none") return 0.0;
    const auto time = parse_duration(node->text);
    return time ? std::optional(static_cast<double>(time->count())) : std::nullopt;
  }
  void error(std::string_view name, const std::string& message, const std::string& help) override {
    diagnostics_.error(entry(name)->key.where(), "E0412", "relay: " + message, help);
  }

 private:
  const YamlNode* value(std::string_view name) const {
    const YamlEntry* found = entry(name);
    return found == nullptr || found->value.broken ? nullptr : &found->value;
  }

  const YamlNode& relay_;
  const YamlNode* lab_ = nullptr;
  Diagnostics& diagnostics_;
};

class RelayReader {
 public:
  RelayReader(const YamlNode& relay, RelaySpec& spec, Diagnostics& diagnostics)
      : keys_(relay, diagnostics), relay_(spec), diagnostics_(diagnostics) {}

  void read() {
    if (const Method* found = find_method(keys_.text("method").value_or("auto"))) relay_.method = found;
    ReuseOptions& options = relay_.options;
    options.method = relay_.method;
    read_layers(options);
    options.prefix = keys_.boolean("prefix").value_or(options.prefix);
    options.min_tokens = integer("min_tokens", options.min_tokens);
    options.max_hops = integer("max_hops", decides(*relay_.method) ? kMaxHops : 0);
    read_keys(keys_, options);
    refuse_keys_of_others();
    if (keys_.has("reuse")) relay_.reuse_where = keys_.entry("reuse")->key.where();
    if (keys_.has("memory")) {
      const Fields memory(keys_.entry("memory")->value);
      relay_.device_bytes = memory.size("device");
      relay_.host_bytes = memory.size("host");
    }
    if (!keys_.has("store")) return;
    const Fields store(keys_.entry("store")->value);
    if (const YamlNode* disk = store.get("disk")) {
      relay_.store = (disk->source->folder() / disk->text).lexically_normal();
      if (disk->text.empty())
        diagnostics_.error(disk->where(), "E0412", "relay: store.disk is empty; expected a folder");
    }
    relay_.store_bytes = store.size("budget");
    options.store = true;
  }

 private:
  std::int32_t integer(const char* key, std::int32_t value) const {
    return static_cast<std::int32_t>(keys_.integer(key).value_or(value));
  }

  /// Reports keys that belong to other methods only.
  void refuse_keys_of_others() {
    std::vector<std::string> names;
    for (const auto& [key, of] : method_keys()) {
      const bool mine = std::find(of.begin(), of.end(), relay_.method) != of.end();
      if (mine || !key.only_here) continue;
      names.clear();
      for (const Method* method : of) names.emplace_back(method->name);
      const std::string last = names.back();
      names.pop_back();
      const std::string others = names.empty() ? last : fmt::format("{} or {}", fmt::join(names, ", "), last);
      keys_.refuse({key.name}, fmt::format("on method {}; expected method {}", relay_.method->name, others));
    }
  }

  void read_layers(ReuseOptions& options) {
    if (!keys_.has("layers")) return;
    const SourceLocation where = keys_.entry("layers")->key.where();
    const bool has_end = keys_.has("layers.end");
    relay_.layers_where = has_end ? keys_.entry("layers.end")->value.where() : where;
    const auto error = [&](const std::string& message, const std::string& help = {}) {
      diagnostics_.error(where, "E0412", "relay: " + message, help);
    };
    const bool group = needs_group(*relay_.method) || !keys_.has("layers.detect");
    LayerRange& range = options.range;
    range = {integer("layers.start", 0), integer(group ? "layers.start" : "layers.detect", 0),
             integer("layers.end", 0)};
    if (group && range.start >= range.end) {
      error(fmt::format("invalid layers: expected start < end, found start {}, end {}", range.start, range.end));
    } else if (group && needs_range(*relay_.method)) {
      error(fmt::format("`layers` needs `detect` for method {}", relay_.method->name),
            "the layer, between start and end, in which tokens are chosen");
    } else if (!group && (range.start >= range.detect || range.detect >= range.end)) {
      error(fmt::format("invalid layers: expected start < detect < end, found start {}, detect {}, end {}", range.start,
                        range.detect, range.end));
    }
  }

  RelayKeys keys_;
  RelaySpec& relay_;
  Diagnostics& diagnostics_;
};

}  // namespace

void read_relay(const Fields& file, RelaySpec& relay, Diagnostics& diagnostics) {
  const YamlNode* node = file.get("relay");
  if (node == nullptr) return;
  const Fields fields(*node);
  relay.where = fields.get("method") != nullptr ? fields.get("method")->where() : file.where("relay");
  RelayReader(*node, relay, diagnostics).read();
}

}  // namespace baton
