// SPDX-License-Identifier: Apache-2.0
#include "sdk/hub/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/base/errors.h"
#include "sdk/hub/environment.h"

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

}  // namespace baton
