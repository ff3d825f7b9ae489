// SPDX-License-Identifier: Apache-2.0
#include "sdk/hub/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/errors.h"
#include "engine/model/gguf.h"
#include "sdk/hub/hub_cache.h"

namespace baton {
namespace {

constexpr std::size_t kMaxPart = 255;   // bytes of a file's name
constexpr std::size_t kMaxName = 1024;  // bytes of a path in a repository
constexpr std::size_t kMaxOwner = 96;   // characters of an organisation or of a repository's own name, as on the hub
constexpr std::size_t kMaxUrl = 8192;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

/// The hub's rules; "--" separates the parts of a repository's folder in the cache.
bool is_owner(std::string_view name) {
  const auto edge = [](char c) { return c == '-' || c == '.'; };
  return !name.empty() && name.size() <= kMaxOwner && std::all_of(name.begin(), name.end(), is_name_character) &&
         !edge(name.front()) && !edge(name.back()) && name.find("--") == name.npos && name.find("..") == name.npos;
}

bool is_repository(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash != name.npos && is_owner(name.substr(0, slash)) && is_owner(name.substr(slash + 1));
}

[[noreturn]] void fail(const std::string& text, std::string_view problem) {
  throw ModelError(fmt::format("'{}': {}", text, problem));
}

HubModel checked(HubModel model, const std::string& text) {
  if (!is_repository(model.repository))
    fail(text, "expected hf:ORG/NAME, hf:ORG/NAME:FILE or hf:ORG/NAME:QUANTISATION, for example hf:org/name:Q4_K_M");
  if (!is_safe_name(model.revision)) fail(text, "the revision is invalid; expected a branch, a tag or a commit");
  if (!model.choice.empty() && !is_safe_name(model.choice))
    fail(text, "the choice is invalid; expected the name of a file or a quantisation such as Q4_K_M");
  return model;
}

HubModel parse_hub_model(const std::string& text) {
  HubModel model;
  std::string_view rest = std::string_view(text).substr(3);
  if (rest.starts_with("//")) rest.remove_prefix(2);  // hf://org/name is the form of other tools
  if (const std::size_t colon = rest.find(':'); colon != rest.npos) {
    model.choice = rest.substr(colon + 1);
    if (model.choice.empty()) fail(text, "nothing follows the colon; expected a file's name or a quantisation");
    rest = rest.substr(0, colon);
  }
  if (const std::size_t at = rest.find('@'); at != rest.npos) {
    model.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
  }
  model.repository = rest;
  return checked(std::move(model), text);
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// The part of an URL before its query and fragment.
std::string_view without_query(std::string_view url) { return url.substr(0, url.find_first_of("?#")); }

/// The repository that a page of the hub shows: https://HOST/org/name[/(resolve|blob|tree)/REVISION[/FILE]].
std::optional<HubModel> parse_hub_page(const std::string& url) {
  const std::string_view page = without_query(url);
  std::string_view path;
  for (const std::string& host : {hub_endpoint(), std::string("https://huggingface.co"), std::string("https://hf.co"),
                                  std::string("https://www.huggingface.co")})
    if (page.starts_with(host + '/')) path = page.substr(host.size() + 1);
  while (path.ends_with('/')) path.remove_suffix(1);
  std::vector<std::string_view> parts;
  for (std::string_view rest = path; !rest.empty() && parts.size() < 5;) {
    const std::size_t slash = parts.size() == 4 ? rest.npos : rest.find('/');
    parts.push_back(rest.substr(0, slash));
    rest = slash == rest.npos ? std::string_view() : rest.substr(slash + 1);
  }
  if (parts.size() < 2 || parts.size() == 3 || parts[0] == "datasets" || parts[0] == "spaces") return std::nullopt;
  HubModel model{fmt::format("{}/{}", parts[0], parts[1]), "main", ""};
  if (!is_repository(model.repository)) return std::nullopt;
  if (parts.size() > 2) {
    if (parts[2] != "resolve" && parts[2] != "blob" && parts[2] != "tree") return std::nullopt;
    model.revision = percent_decoded(parts[3]);
    if (parts.size() > 4 && parts[2] != "tree") model.choice = percent_decoded(parts[4]);
  }
  return checked(std::move(model), url);
}

UrlModel parse_url_model(const std::string& url) {
  const std::string shown = shown_url(url);
  if (url.size() > kMaxUrl) fail(shown.substr(0, 80), "the URL is too long");
  if (std::any_of(url.begin(), url.end(), [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7F; }))
    fail(shown, "an URL holds no blanks and no control characters; write them as %XX");
  const std::string_view path = without_query(url);
  if (path.starts_with("file:") ? !path.starts_with("file:///") : path.find("://") == path.npos)
    fail(shown, "expected https://HOST/PATH/NAME.gguf or file:///PATH/NAME.gguf");
  UrlModel model{url, percent_decoded(path.substr(path.rfind('/') + 1))};
  if (!is_safe_name(model.name) || model.name.find('/') != std::string::npos || !model.name.ends_with(".gguf"))
    fail(shown, "expected an URL of a GGUF file, which ends in .gguf; of folders only those of a hub can be pulled");
  return model;
}

}  // namespace

std::string HubModel::text() const {
  return fmt::format("{}{}{}{}{}", repository, revision == "main" ? "" : "@", revision == "main" ? "" : revision,
                     choice.empty() ? "" : ":", choice);
}

std::string UrlModel::sibling(const std::string& file) const {
  const std::string_view path = without_query(url);
  return fmt::format("{}{}{}", path.substr(0, path.rfind('/') + 1), percent_encoded(file, false),
                     std::string_view(url).substr(path.size()));
}

std::optional<ModelSource> parse_model_source(const std::string& text) {
  if (text.starts_with("hf:")) return parse_hub_model(text);
  if (!text.starts_with("https:") && !text.starts_with("http:") && !text.starts_with("file:")) return std::nullopt;
  if (auto page = parse_hub_page(text)) return *std::move(page);
  return parse_url_model(text);
}

std::string shown_url(std::string_view url) {
  std::string shown(without_query(url));
  const std::size_t host = shown.find("://");
  if (host == std::string::npos) return shown;
  const std::size_t end = shown.find('/', host + 3), user = shown.substr(0, end).rfind('@');
  if (user != std::string::npos && user > host) shown.erase(host + 3, user + 1 - (host + 3));
  return shown;
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxName) return false;
  const auto cannot_be_in_a_name = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '\\' || c == ':';
  };
  if (std::any_of(name.begin(), name.end(), cannot_be_in_a_name)) return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPart) return false;
    begin = end + 1;
  }
  return true;
}

bool is_hex(std::string_view text, std::size_t digits) {
  const auto lower_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == digits && std::all_of(text.begin(), text.end(), lower_hex);
}

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = is_name_character(c) || c == '~' || (c == '/' && keep_slashes);
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const int high = text[at] == '%' && at + 2 < text.size() ? digit_of(text[at + 1]) : -1;
    const int low = high >= 0 ? digit_of(text[at + 2]) : -1;
    if (low < 0) {
      out += text[at];
      continue;
    }
    out += static_cast<char>(high * 16 + low);
    at += 2;
  }
  return out;
}

namespace {

constexpr std::size_t kMaxListed = 60;  // models in an error's list
constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kWholeFolder = "safetensors";

/// The files that Baton reads in addition to the weights; so are those whose names begin with "tokenizer".
constexpr std::array<std::string_view, 6> kFolderFiles = {"config.json",         "generation_config.json",
                                                          "chat_template.jinja", "model.safetensors.index.json",
                                                          "baton.profile.json",  "baton.corrections.safetensors"};

/// A GGUF file, or the parts of one.
struct GgufGroup {
  std::string name;                // path of the file, or of its first part
  std::string stem;                // file name without folder, part and .gguf
  std::vector<std::size_t> files;  // by part
  std::int64_t bytes = 0;          // -1: unknown
  std::string missing;             // name of a part that is not there
};

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

void add_bytes(std::int64_t& sum, std::int64_t bytes) { sum = sum < 0 || bytes < 0 ? -1 : sum + bytes; }

std::vector<GgufGroup> gguf_models(const std::vector<HubFile>& files) {
  std::map<std::string, std::size_t, std::less<>> by_name;
  for (std::size_t index = 0; index < files.size(); ++index) by_name.emplace(files[index].name, index);
  std::vector<GgufGroup> models;
  for (const auto& [name, index] : by_name) {
    if (!name.ends_with(".gguf")) continue;
    const std::string_view file = base_name(name);
    const auto part = gguf_part_name(file);
    if (part && part->number != 1) continue;
    GgufGroup model{name, part ? part->stem : std::string(file.substr(0, file.size() - 5)), {}, 0, ""};
    const std::string folder = name.substr(0, name.size() - file.size());
    for (std::uint32_t number = 1; number <= (part ? part->count : 1); ++number) {
      const auto found = by_name.find(part ? folder + part->of(number) : name);
      if (found == by_name.end()) {
        model.missing = part->of(number);
        break;
      }
      model.files.push_back(found->second);
      add_bytes(model.bytes, files[found->second].bytes);
    }
    models.push_back(std::move(model));
  }
  return models;
}

/// Projectors of images and importance matrices are GGUF files, but no models; they count when they are named.
bool is_companion(const GgufGroup& model) {
  const std::string stem = lower(model.stem);
  return stem.starts_with("mmproj") || stem.find("imatrix") != std::string::npos;
}

/// Whether `word` stands in the name between its ends and the separators "-", "." and (before it) "_".
bool has_word(std::string_view name, std::string_view word) {
  for (std::size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || std::string_view("-._").find(name[at - 1]) != std::string_view::npos;
    const bool ends = end == name.size() || name[end] == '-' || name[end] == '.';
    if (begins && ends) return true;
  }
  return false;
}

bool is_named(const GgufGroup& model, const std::vector<HubFile>& files, const std::string& choice) {
  for (const std::size_t index : model.files) {
    const std::string& name = files[index].name;
    for (const std::string_view form : {std::string_view(name), base_name(name)})
      if (form == choice || form == choice + ".gguf") return true;
  }
  return model.stem == choice || model.stem + ".gguf" == choice;
}

/// The files at the top of a repository that make a model folder; nothing without config.json or without weights.
std::optional<ModelChoice> folder_choice(const std::vector<HubFile>& files, std::string* missing) {
  std::map<std::string, std::size_t, std::less<>> top;
  for (std::size_t index = 0; index < files.size(); ++index)
    if (files[index].name.find('/') == std::string::npos) top.emplace(files[index].name, index);
  if (!top.contains("config.json")) return std::nullopt;
  ModelChoice chosen;
  for (const auto& [name, index] : top) {
    const bool listed = std::find(kFolderFiles.begin(), kFolderFiles.end(), name) != kFolderFiles.end();
    if (listed || (name.starts_with("tokenizer") && name.find(".gguf") == name.npos)) chosen.files.push_back(index);
  }
  if (const auto single = top.find("model.safetensors"); single != top.end()) {
    chosen.files.push_back(single->second);
    return chosen;
  }
  if (!top.contains("model.safetensors.index.json")) return std::nullopt;
  // "model-00001-of-00004.safetensors" is numbered as the parts of a GGUF file are.
  std::map<std::string, std::uint32_t> counts;
  for (const auto& [name, index] : top) {
    if (!name.ends_with(kSafetensors)) continue;
    const auto part = gguf_part_name(name.substr(0, name.size() - kSafetensors.size()) + ".gguf");
    if (!part) continue;
    chosen.files.push_back(index);
    counts.emplace(part->stem, part->count);
  }
  for (const auto& [stem, count] : counts) {
    for (std::uint32_t number = 1; number <= count; ++number) {
      const std::string name = fmt::format("{}-{:05}-of-{:05}{}", stem, number, count, kSafetensors);
      if (top.contains(name)) continue;
      *missing = name;
      return std::nullopt;
    }
  }
  return counts.empty() ? std::nullopt : std::optional(std::move(chosen));
}

std::string listed(const std::vector<HubFile>& files, const std::vector<GgufGroup>& models,
                   const std::vector<const GgufGroup*>& some) {
  std::string text;
  std::size_t lines = 0;
  for (const GgufGroup& model : models) {
    if (!some.empty() && std::find(some.begin(), some.end(), &model) == some.end()) continue;
    if (lines++ == kMaxListed) continue;
    text += fmt::format("\n  {}  {}{}", model.name, size_text(model.bytes),
                        model.files.size() > 1 ? fmt::format(" in {} parts", model.files.size()) : "");
    if (!model.missing.empty()) text += fmt::format(", without {}", model.missing);
  }
  if (lines > kMaxListed) text += fmt::format("\n  and {} more", lines - kMaxListed);
  std::string ignored;
  if (const auto folder = folder_choice(files, &ignored); folder && some.empty()) {
    std::int64_t bytes = 0;
    for (const std::size_t index : folder->files) add_bytes(bytes, files[index].bytes);
    text += fmt::format("\n  safetensors  {} in {} files", size_text(bytes), folder->files.size());
  }
  return text;
}

ModelChoice chosen_gguf(const GgufGroup& model, const std::string& origin) {
  if (!model.missing.empty())
    throw ChoiceError(fmt::format("{}: {} is in parts, and {} is not there", origin, model.name, model.missing));
  return {model.files, model.name};
}

}  // namespace

std::string size_text(std::int64_t bytes) {
  if (bytes < 0) return "size unknown";
  static constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

ModelChoice choose_model(const std::vector<HubFile>& files, const std::string& choice, const std::string& origin) {
  const std::vector<GgufGroup> models = gguf_models(files);
  std::string missing;
  if (choice.empty() || choice == kWholeFolder) {
    if (auto folder = folder_choice(files, &missing)) return *std::move(folder);
    if (!missing.empty())
      throw ChoiceError(fmt::format("{}: the weights are in parts, and {} is not there", origin, missing));
  }
  std::vector<const GgufGroup*> meant;
  if (!choice.empty()) {
    for (const GgufGroup& model : models)
      if (is_named(model, files, choice)) meant.push_back(&model);
    if (meant.empty()) {
      const std::string word = lower(choice);
      for (const GgufGroup& model : models)
        if (!is_companion(model) && (has_word(lower(model.stem), word) || lower(model.stem) == word))
          meant.push_back(&model);
    }
  } else {
    for (const GgufGroup& model : models)
      if (!is_companion(model)) meant.push_back(&model);
  }
  if (meant.size() == 1) return chosen_gguf(*meant.front(), origin);
  const std::string list = listed(files, models, meant);
  if (!meant.empty() && choice.empty())
    throw ChoiceError(fmt::format("{} has {} models; name one by its file or its quantisation, as {}:{}{}", origin,
                                  meant.size(), origin, base_name(meant.front()->name), list));
  if (!meant.empty())
    throw ChoiceError(
        fmt::format("{}: '{}' means {} models; name one by its file:{}", origin, choice, meant.size(), list));
  if (list.empty())
    throw ChoiceError(fmt::format(
        "{} holds no model that Baton reads: neither a GGUF file nor config.json with safetensors weights", origin));
  throw ChoiceError(choice.empty() ? fmt::format("{}: expected one of{}", origin, list)
                                   : fmt::format("{}: nothing matches '{}'; expected one of{}", origin, choice, list));
}

}  // namespace baton
