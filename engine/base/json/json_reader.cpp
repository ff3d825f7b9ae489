// SPDX-License-Identifier: Apache-2.0
#include "engine/base/json/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "engine/base/json/json_parts.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// Estimated memory, with what the allocator adds.
constexpr std::size_t kElementBytes = 2 * sizeof(Json);  // a list's capacity doubles
constexpr std::size_t kMemberBytes = 112;                // a node of the object's tree, with the key
constexpr std::size_t kContainerBytes = 64;
constexpr std::size_t kTextBytes = 48;

// What is kept of the library's messages, which quote whole tokens, and of a key.
constexpr std::size_t kMaxMessage = 500;
constexpr std::size_t kMaxKey = 200;

// NOLINTBEGIN(bugprone-exception-escape): the library's destructor allocates only for values that hold others.
/// Frees the values inside of each other before those that hold them; the depth is limited.
void dismantle(Json& value) noexcept {
  if (auto* members = value.get_ptr<Json::object_t*>()) {
    for (auto& [name, member] : *members) dismantle(member);
    members->clear();
  } else if (auto* elements = value.get_ptr<Json::array_t*>()) {
    for (Json& element : *elements) dismantle(element);
    elements->clear();
  }
}
// NOLINTEND(bugprone-exception-escape)

/// How far the text was read. The parser holds a string or number several times and quotes it in its errors, so that
/// its size is limited while it is read.
class Reading {
 public:
  Reading(std::string_view text, std::size_t max_token)
      : begin_(text.data()), reached_(text.data()), token_(text.data()), max_token_(max_token) {}

  std::size_t byte() const { return static_cast<std::size_t>(reached_ - begin_); }
  void move_to(const char* at) {
    reached_ = at;
    if (static_cast<std::size_t>(at - token_) > max_token_)
      exceed(fmt::format("expected strings and numbers of at most {} bytes, found a longer one", max_token_));
  }
  /// What comes next is another token.
  void end_token() { token_ = reached_; }

  [[noreturn]] void exceed(const std::string& expected) const {
    throw JsonError(JsonError::Kind::limit, byte(), fmt::format("byte {}: {}", byte(), expected));
  }

 private:
  const char* begin_;
  const char* reached_;
  const char* token_;
  std::size_t max_token_;
};

/// The text as an input iterator that tells how far it was read.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, Reading* reading) : at_(at), reading_(reading) {}
  const char& operator*() const { return *at_; }
  Cursor& operator++() {
    reading_->move_to(++at_);
    return *this;
  }
  Cursor operator++(int) {
    const Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Reading* reading_;
};

/// Builds the values from the parser's events. Returning false from an event would stop the parser, as throwing does.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const JsonLimits& limits, JsonDocument& document)
      : text_(text), reading_(text, limits.max_token), limits_(limits), root_(document.root()) {}

  Cursor begin() { return {text_.data(), &reading_}; }
  Cursor end() { return {text_.data() + text_.size(), &reading_}; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override {
    spend(kTextBytes + value.size());
    return add(std::move(value));
  }
  bool binary(binary_t&) override { return false; }  // JSON has none

  bool start_object(std::size_t) override { return open(Json::value_t::object); }
  bool start_array(std::size_t) override { return open(Json::value_t::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    reading_.end_token();
    spend(kMemberBytes + name.size());
    const auto [member, added] = open_.back()->get_ref<Json::object_t&>().try_emplace(std::move(name));
    if (!added && limits_.unique_keys) fail_repeated(beginning(member->first, kMaxKey));
    member_ = &member->second;
    dismantle(*member_);  // the value of the same key before
    return true;
  }

  bool parse_error(std::size_t where, const std::string&, const Json::exception& error) override {
    const std::string_view what = error.what();
    const std::size_t tag = what.find("] ");  // "[json.exception.parse_error.101] "
    const bool number = dynamic_cast<const Json::out_of_range*>(&error) != nullptr;  // like 1e999
    throw JsonError(
        number ? JsonError::Kind::number : JsonError::Kind::syntax, where,
        fmt::format("not JSON: {}", beginning(tag == what.npos ? what : what.substr(tag + 2), kMaxMessage)));
  }

 private:
  [[noreturn]] void fail_repeated(const std::string& name) const {
    throw JsonError(JsonError::Kind::repeated_key, reading_.byte(),
                    fmt::format("byte {}: expected each key once, found \"{}\" twice", reading_.byte(), name), name);
  }

  void spend(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > limits_.max_bytes)
      reading_.exceed(fmt::format("expected values that fit into {} bytes of memory, found more", limits_.max_bytes));
  }

  /// Returns where the next value belongs.
  Json& place() {
    reading_.end_token();
    if (++values_ > limits_.max_values)
      reading_.exceed(fmt::format("expected at most {} values, found more", limits_.max_values));
    spend(kElementBytes);
    if (open_.empty()) return root_;
    return open_.back()->is_array() ? open_.back()->get_ref<Json::array_t&>().emplace_back() : *member_;
  }

  bool add(Json value) {
    place().swap(value);
    return true;
  }

  bool open(Json::value_t kind) {
    if (open_.size() == limits_.max_depth)
      reading_.exceed(fmt::format("expected lists and objects nested at most {} deep, found more", limits_.max_depth));
    spend(kContainerBytes);
    Json& value = place();
    value = Json(kind);
    open_.push_back(&value);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  Reading reading_;
  const JsonLimits& limits_;
  Json& root_;
  std::vector<Json*> open_;  // lists and objects that have begun, outermost first
  Json* member_ = nullptr;   // whose key was read last
  std::size_t values_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace

JsonDocument::~JsonDocument() { dismantle(root_); }  // NOLINT(bugprone-exception-escape)

JsonDocument read_json(std::string_view text, const JsonLimits& limits) {
  JsonDocument document;
  Builder builder(text, limits, document);
  Json::sax_parse(builder.begin(), builder.end(), &builder);
  return document;
}

}  // namespace baton
