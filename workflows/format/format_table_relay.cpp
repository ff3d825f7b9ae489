// SPDX-License-Identifier: Apache-2.0
// The section `relay` of the format's table: keys of all methods, and those that the methods declare themselves
// (engine/reuse/method_keys.h).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/registry.h"
#include "workflows/format/format_table.h"

namespace baton::format_types {
namespace {

FormatType type_of(const MethodKey& key) {
  using Type = MethodKey::Type;
  switch (key.type) {
    case Type::boolean:
      return boolean();
    case Type::integer:
      return integer(key.low, key.high);
    case Type::number:
      return number(key.low, key.high);
    case Type::number_above:
      return number_above(key.low, key.high);
    case Type::choice:
      return choice(key.words);
    case Type::text:
      return string();
    case Type::time_limit:
      return time_limit();
  }
  return any();
}

/// "`rectify`, `verified`: ".
std::string names_of(const std::vector<const Method*>& methods) {
  std::vector<std::string> names;
  for (const Method* method : methods) names.push_back(fmt::format("`{}`", method->name));
  return fmt::format("{}: ", fmt::join(names, ", "));
}

/// Adds the keys that methods declare, of the product or of the laboratory.
void add_method_keys(std::vector<FormatKey>& keys, std::span<const Method* const> of, bool lab) {
  std::vector<FormatKey> inner;
  for (const auto& [key, having] : method_keys(of)) {
    if (key.lab != lab) continue;
    const std::string object_name = lab ? "lab" : "relay";
    const std::size_t dot = key.name.find('.');
    if (dot == std::string::npos) {
      keys.push_back({object_name, key.name, type_of(key), false, key.standard, names_of(having) + key.doc});
      continue;
    }
    const std::string section = key.name.substr(0, dot);
    const auto known = [&](const FormatKey& one) { return one.object == object_name && one.key == section; };
    if (std::none_of(keys.begin(), keys.end(), known))
      keys.push_back({object_name, section, object(section), false, "", names_of(having) + "how texts are reused."});
    inner.push_back({section, key.name.substr(dot + 1), type_of(key), false, key.standard, key.doc});
  }
  for (FormatKey& key : inner) keys.push_back(std::move(key));
}

std::span<const Method* const> known_methods(bool laboratory) { return laboratory ? methods() : product_methods(); }

void add_lab_keys(std::vector<FormatKey>& keys) {
  keys.push_back({"relay", "lab", object("lab"), false, "", "Settings for research, which `baton-lab` alone accepts."});
  keys.push_back({"lab", "layers", object("layers"), false,
                  "those of the profile, else L/8 to 2 L/3 of L layers; `droidspeak`: the pair's",
                  "The layers that `rectify` or `droidspeak` recompute."});
  add_method_keys(keys, methods(), true);
  keys.insert(
      keys.end(),
      {
          {"layers", "start", integer(0), true, "",
           "The layer at which reused tokens enter, from their hidden states; 0: from their embeddings."},
          {"layers", "detect", integer(1), false, "",
           "`rectify`: the layer in which values are compared and tokens are chosen."},
          {"layers", "end", integer(1), true, "",
           "The last layer in which the chosen tokens (`droidspeak`: all reused tokens) are recomputed; it must "
           "be a layer of the model."},
      });
}

}  // namespace

FormatType relay_method(bool laboratory) {
  std::vector<std::string> names = {std::string(default_method().name)};
  for (const Method* method : known_methods(laboratory)) {
    if (!method->alias.empty()) names.insert(names.begin() + 1, std::string(method->alias));
    if (method != &default_method()) names.emplace_back(method->name);
  }
  return choice(std::move(names));
}

std::vector<FormatKey> relay_keys(bool laboratory) {
  std::string aliases;
  for (const Method* method : known_methods(laboratory)) {
    if (!method->alias.empty()) aliases += fmt::format("; `{}` is another name of `{}`", method->alias, method->name);
  }
  std::vector<FormatKey> keys = {
      {"relay", "method", relay_method(laboratory), false, std::string(default_method().name),
       fmt::format("The method; `{}` chooses per placeholder{}.", default_method().name, aliases)},
  };
  add_method_keys(keys, known_methods(laboratory), false);
  keys.insert(
      keys.end(),
      {
          {"relay", "min_tokens", integer(1), false, "32", "Shorter segments are computed in full."},
          {"relay", "max_hops", integer(0), false, "4 with `auto` and `verified`, else 0",
           "Texts whose own KV is that many hand-overs away from exact KV are computed in full, since errors add up; "
           "0: no bound."},
          {"relay", "prefix", boolean(), false, "true",
           "Methods other than `full` also reuse the longest exact prefix in the prefix cache."},
          {"relay", "memory", object("memory"), false, "", "Limits of the memory for KV."},
          {"memory", "device", size(), false, "half of what is free",
           "KV on the device, including that of running prompts. On the CPU, what the limit of a container leaves is "
           "free."},
          {"memory", "host", size(), false, "a quarter of what is available",
           "KV of a device's segments in host memory."},
          {"relay", "store", object("store"), false, "", "Where KV is kept that outlives the process."},
          {"store", "disk", string(), true, "",
           "A folder, relative to this file. The KV of what prompts begin with, and of exact texts, is read from there "
           "instead of being computed again, on the CPU."},
          {"store", "budget", size(), false, "10GiB",
           "Of all files of the folder; those that were used least recently are evicted."},
      });
  if (laboratory) add_lab_keys(keys);
  return keys;
}

}  // namespace baton::format_types

namespace baton {

std::string moved_key_help(std::string_view object_name, std::string_view key) {
  if (object_name != "relay") return {};
  if (key == "lab") return "`relay.lab` is for research: run this file with baton-lab";
  if (!is_laboratory_key(key)) return {};
  return fmt::format("`relay.{0}` is now `relay.lab.{0}`, which baton-lab accepts", key);
}

}  // namespace baton
