// SPDX-License-Identifier: Apache-2.0
// Where a published model comes from: a repository of a Hugging Face hub, or an URL of a GGUF file. `baton pull` and
// every place that takes a model's path read the same text.
// Which files of a repository are a model, chosen by a file's name or a quantisation. The same rules choose what
// `baton pull` downloads and what is found in the cache afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace baton {

/// "hf:ORG/NAME[@REVISION][:CHOICE]".
struct HubModel {
  std::string repository;         // "org/name"
  std::string revision = "main";  // a branch, a tag, a reference such as refs/pr/1, or a commit
  std::string choice;             // a file's name or a quantisation, or empty

  /// What to give `baton pull` for it: "org/name@v1:Q4_K_M".
  std::string text() const;
};

/// An https:, http: or file: URL of a GGUF file; of a split one, of any part.
struct UrlModel {
  std::string url;
  std::string name;  // the file's name: what the URL's path ends in, with %XX decoded

  /// The URL of another file in the same folder; a query belongs to each file and stays.
  std::string sibling(const std::string& file) const;
};

using ModelSource = std::variant<HubModel, UrlModel>;

/// The source that a text names, or nothing: it begins with none of hf:, https:, http: and file:. An address that a
/// browser shows on the hub (https://huggingface.co/org/name/blob/main/FILE) is the repository's file. Throws
/// ModelError: what is wrong, and the form that was expected.
std::optional<ModelSource> parse_model_source(const std::string& text);

/// An URL for messages: without what may be secret in it, that is user, password, query and fragment.
std::string shown_url(std::string_view url);

/// Whether a name from a server or a workflow may name a file inside of a folder: parts between single slashes, none
/// of them empty, "." or "..", at most 255 bytes each and 1024 in all, without control characters, and without the
/// backslashes and colons that separate folders, drives and streams on Windows.
bool is_safe_name(std::string_view name);

/// Whether a text is so many hexadecimal digits in lower case.
bool is_hex(std::string_view text, std::size_t digits);

/// `text` with everything but letters, digits and -._~ as %XX; slashes too, unless `keep_slashes`.
std::string percent_encoded(std::string_view text, bool keep_slashes);

/// `text` with each %XX as the byte it stands for; what is no such sign stays.
std::string percent_decoded(std::string_view text);

struct HubFile {
  std::string name;         // path in the repository
  std::int64_t bytes = -1;  // -1: unknown
};

struct ModelChoice {
  std::vector<std::size_t> files;  // indices into the list that was chosen from
  std::string gguf;                // name of the GGUF file (of a split one, its first part); empty: a model folder
};

/// No file, or more than one model, is meant. The message lists the models that are there, with their sizes.
class ChoiceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// With a choice: the GGUF file of that name (path or file name, with or without .gguf; of a split file any part or the
/// name without a part), or the one whose name has the quantisation as a word (Q4_K_M, in any case;
/// "model-Q4_K_M.gguf", "model.q4_k_m.gguf"). "safetensors" is the folder of config.json. Without one: that folder,
/// where it has weights, else the only GGUF file. All parts of split files, in order. Throws ChoiceError, whose message
/// calls the repository `origin`.
ModelChoice choose_model(const std::vector<HubFile>& files, const std::string& choice, const std::string& origin);

/// "4.4 GiB"; "size unknown" for a negative number.
std::string size_text(std::int64_t bytes);

}  // namespace baton
