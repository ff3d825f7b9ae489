// SPDX-License-Identifier: Apache-2.0
// The only user of yaml-cpp: its events become a YamlNode. yaml-cpp's own tree is not used because it keeps the last
// of two equal keys and does not tell quoted scalars from plain ones.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_map>

#include "engine/base/hash.h"
#include "workflows/format/yaml_tree.h"

namespace baton {
namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxYamlNodes = 50'000;       // with the copies that anchors and aliases make
constexpr std::size_t kMaxScalarBytes = 16u << 20;  // the same for scalar text

struct YamlProblem {
  SourceLocation where;
  std::string code;
  std::string message;
  std::string hint = {};
};

/// Bytes from the opening quote to behind the closing one; 0 when it is never closed.
std::size_t quoted_length(std::string_view text) {
  const char quote = text.front();
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 == text.size() || text[i + 1] != '\'') return i + 1;
      ++i;
    }
  }
  return 0;
}

constexpr const char* kQuoteIt = "put the text into double quotes";

/// yaml-cpp's words for the commonest mistakes, in those of a user.
YamlProblem syntax_problem(const SourceText& source, const std::string& message, std::size_t at) {
  const std::string_view text(source.text());
  const std::size_t line = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0: the first line
  const std::size_t tab = text.find_first_not_of(' ', line);
  if (tab < at && text[tab] == '\t') return {source.at(tab, 1), "E0101", "a tab in the indentation; use spaces"};
  const char here = at < text.size() ? text[at] : '\0', before = at > 0 && at <= text.size() ? text[at - 1] : '\0';
  const auto problem = [&](std::string what, std::string hint) {
    return YamlProblem{source.at(at, 1), "E0101", std::move(what), std::move(hint)};
  };
  const bool in_flow = message == "end of map flow not found" || message == "end of sequence flow not found";
  const bool opened_here = text.substr(line, at - line).find_first_of("{[") != std::string_view::npos;
  if (in_flow && here == ':' && opened_here) return problem("a ': ' in a text without quotes", kQuoteIt);
  if (in_flow && (before == '"' || before == '\'')) {
    return problem(fmt::format("a text goes on behind the {} that ends it", before),
                   before == '"' ? "write \\\" inside of double quotes" : "write '' inside of single quotes");
  }
  if (message == "unknown token") return problem(fmt::format("a text without quotes begins with '{}'", here), kQuoteIt);
  if (message == "the referenced anchor is not defined")
    return problem("an alias ('*name') of nothing that '&name' marks", "put it into double quotes if it is a text");
  if (message.starts_with("unknown escape character"))
    return problem(message, "in double quotes '\\' begins an escape; write '\\\\', or use single quotes");
  static constexpr std::pair<std::string_view, std::string_view> kMessages[] = {
      {"end of map flow not found", "a map that began with '{' is not closed"},
      {"end of sequence flow not found", "a list that began with '[' is not closed"},
      {"illegal map value", "no ': ' can stand here; quote the text if it belongs to one"},
      {"end of map not found", "this does not belong to the map above it (check the indentation)"},
      {"end of sequence not found", "this does not belong to the list above it (check the indentation)"},
  };
  for (const auto& [theirs, ours] : kMessages) {
    if (message == theirs) return {source.at(at, 1), "E0101", std::string(ours)};
  }
  return {source.at(at, 1), "E0101", message};
}

/// A list or a map whose end has not come yet.
struct OpenNode {
  YamlNode node;
  YAML::anchor_t anchor = 0;
  YAML::Mark mark;
  std::optional<YamlNode> key;                                    // read, its value not yet
  std::vector<YamlNode> merged;                                   // maps behind '<<'
  std::unordered_map<std::string, std::size_t, SeededHash> keys;  // keys of the entries so far

  /// The entry of a key; null: there is none.
  const YamlEntry* entry_of(const std::string& name) const {
    const auto found = keys.find(name);
    return found == keys.end() ? nullptr : &node.entries[found->second];
  }
  void add_entry(YamlNode of_entry, YamlNode value) {
    keys.emplace(of_entry.text, node.entries.size());
    node.entries.push_back({std::move(of_entry), std::move(value)});
  }

  /// Adds the entries of the merged maps whose keys are not there.
  void take_merged() {
    for (const YamlNode& map : merged) {
      for (const YamlEntry& entry : map.entries) {
        if (keys.try_emplace(entry.key.text, node.entries.size()).second) node.entries.push_back(entry);
      }
    }
  }
};

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(SourcePtr source, Diagnostics& diagnostics) : source_(std::move(source)), diagnostics_(diagnostics) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) fail(mark, "E0104", "a second document begins here; expected one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(begin(mark, {}), anchor); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(mark, "E0105", "an alias inside the node that it refers to");
    count_copy(found->second, mark);
    add(found->second, 0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = begin(mark, tag);
    node.text = value;
    bytes_ += value.size();
    check_size(mark);
    const std::string_view rest =
        std::string_view(source_->text()).substr(std::min(node.offset, source_->text().size()));
    if (rest.starts_with('"') || rest.starts_with('\'')) {
      node.length = quoted_length(rest);
      if (node.length == 0) fail(mark, "E0101", "the quote is never closed");
    } else if (tag == "?") {
      node.plain = true;
      node.length = std::max<std::size_t>(1, value.size());
    }
    node.kind = node.plain ? kind_of_plain(value) : YamlNode::Kind::string;
    add(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  [[noreturn]] void fail(const YAML::Mark& mark, std::string code, std::string message, std::string hint = {}) const {
    throw YamlProblem{source_->at(static_cast<std::size_t>(std::max(0, mark.pos)), 1), std::move(code),
                      std::move(message), std::move(hint)};
  }

  void check_size(const YAML::Mark& mark) const {
    if (nodes_ > kMaxYamlNodes)
      fail(mark, "E0106", fmt::format("more than {} nodes once aliases are resolved", kMaxYamlNodes));
    if (bytes_ > kMaxScalarBytes)
      fail(mark, "E0106", fmt::format("more than {} bytes once aliases are resolved", kMaxScalarBytes));
  }

  void count_copy(const YamlNode& node, const YAML::Mark& mark) {
    const TreeSize size = size_of(node);
    nodes_ += size.nodes;
    bytes_ += size.bytes;
    check_size(mark);
    check_depth(mark, open_.size() + 1 + size.levels);
  }

  void check_depth(const YAML::Mark& mark, std::size_t depth) const {
    if (depth > kMaxDepth) fail(mark, "E0106", fmt::format("nested deeper than {} levels", kMaxDepth));
  }

  YamlNode begin(const YAML::Mark& mark, const std::string& tag) {
    if (tag.size() > 1)
      fail(mark, "E0107", fmt::format("tags are not supported ('{}')", tag),
           "put it into double quotes if it is a text");
    ++nodes_;
    check_size(mark);
    YamlNode node;
    node.source = source_;
    node.offset = past_anchor(static_cast<std::size_t>(std::max(0, mark.pos)));
    return node;
  }

  /// yaml-cpp marks a scalar with an anchor at the anchor.
  std::size_t past_anchor(std::size_t offset) const {
    const std::string_view text(source_->text());
    while (offset < text.size() && (text[offset] == '&' || text[offset] == '!')) {
      const std::size_t end = text.find_first_of(" \t\r\n,[]{}", offset);
      const std::size_t next = text.find_first_not_of(" \t\r\n", end);
      if (end == std::string_view::npos || next == std::string_view::npos) break;
      offset = next;
    }
    return offset;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    check_depth(mark, open_.size() + 1);
    OpenNode added{begin(mark, tag), anchor, mark, {}, {}, {}};
    added.node.kind = kind;
    open_.push_back(std::move(added));
  }

  void close() {
    OpenNode done = std::move(open_.back());
    open_.pop_back();
    done.take_merged();
    if (done.anchor != 0) count_copy(done.node, done.mark);
    add(std::move(done.node), done.anchor);
  }

  void add(YamlNode node, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.key) {
      parent.key = std::move(node);
    } else {
      YamlNode key = std::move(*parent.key);
      parent.key.reset();
      add_entry(parent, std::move(key), std::move(node));
    }
  }

  /// Whether a map as a key is how YAML reads '{{ name }}'.
  bool is_placeholder(const YamlNode& key) const {
    const std::string& text = source_->text();
    return key.kind == YamlNode::Kind::map && key.offset > 0 && text[key.offset] == '{' && text[key.offset - 1] == '{';
  }

  void add_entry(OpenNode& map, YamlNode key, YamlNode value) {
    if (!key.is_scalar()) {
      const bool placeholder = is_placeholder(key);
      diagnostics_.error(key.where(), "E0108", fmt::format("{} cannot be a key", described(key.kind)),
                         placeholder ? "put a text with placeholders into double quotes: \"{{ name }}\"" : "");
      if (placeholder && open_.size() > 1) map.node.broken = true;
    } else if (key.plain && key.text == "<<") {
      merge(map, key, std::move(value));
    } else if (const YamlEntry* first = map.entry_of(key.text)) {
      diagnostics_.error(key.where(), "E0103", fmt::format("duplicate key '{}'", key.text),
                         fmt::format("first in line {}", first->key.where().line));
    } else {
      map.add_entry(std::move(key), std::move(value));
    }
  }

  void merge(OpenNode& map, const YamlNode& key, YamlNode value) {
    std::vector<YamlNode> maps;
    if (value.kind == YamlNode::Kind::list) {
      maps = std::move(value.items);
    } else {
      maps.push_back(std::move(value));
    }
    for (YamlNode& from : maps) {
      if (from.kind != YamlNode::Kind::map) {
        diagnostics_.error(key.where(), "E0109",
                           fmt::format("'<<' takes a map or a list of maps, found {}", described(from.kind)));
      } else {
        map.merged.push_back(std::move(from));
      }
    }
  }

  SourcePtr source_;
  Diagnostics& diagnostics_;
  YamlNode root_;
  std::vector<OpenNode> open_;
  std::map<YAML::anchor_t, YamlNode> anchors_;
  std::size_t nodes_ = 0, bytes_ = 0;
  int documents_ = 0;
};

}  // namespace

std::optional<YamlNode> parse_yaml(const SourcePtr& source, Diagnostics& diagnostics) {
  TreeBuilder builder(source, diagnostics);
  try {
    std::istringstream in(source->text());
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YamlProblem& problem) {
    diagnostics.error(problem.where, problem.code, problem.message, problem.hint);
    return std::nullopt;
  } catch (const YAML::Exception& error) {
    const YamlProblem problem =
        syntax_problem(*source, error.msg, static_cast<std::size_t>(std::max(0, error.mark.pos)));
    diagnostics.error(problem.where, problem.code, problem.message, problem.hint);
    return std::nullopt;
  }
  YamlNode root = builder.take();
  root.source = source;
  return root;
}

}  // namespace baton
