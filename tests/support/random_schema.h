// SPDX-License-Identifier: Apache-2.0
// Random JSON Schemas within what can be enforced, from a seed, and random values that fulfil them.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace baton::test {

class RandomSchema {
 public:
  using Json = nlohmann::ordered_json;

  /// `others`: objects may have further properties, any number of them.
  explicit RandomSchema(unsigned seed, bool others) : random_(seed), others_(others) {}

  /// `depth`: of lists and objects inside of each other. Texts and lists are bounded, so that an answer comes to an
  /// end.
  Json schema(int depth) {
    switch (below(depth > 0 ? 12 : 7)) {
      case 0:
        return bounded({{"type", "integer"}}, -30, 130);
      case 1:
        return chance() ? bounded({{"type", "number"}}, -2, 3) : Json{{"type", "number"}};
      case 2:
        return text_schema();
      case 3:
        return {{"type", chance() ? "boolean" : "null"}};
      case 4:
        return {{"enum", listed()}};
      case 5:
        return {{"const", listed()[0]}};
      case 6:
        return {{"type", {"integer", "boolean", "null"}}, {"maximum", 9}, {"minimum", -9}};
      case 7:
        return {{"anyOf", {schema(depth - 1), schema(depth - 1)}}, {"description", "either"}};
      case 8:
        return array(depth);
      default:
        return object(depth);
    }
  }

  /// A value of a schema of this class, with its properties in the schema's order.
  Json value(const Json& schema) {
    if (schema.contains("enum")) return one_of(schema["enum"]);
    if (schema.contains("const")) return schema["const"];
    if (schema.contains("anyOf")) return value(one_of(schema["anyOf"]));
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    const std::string type = one_of(types).get<std::string>();
    if (type == "null") return nullptr;
    if (type == "boolean") return chance();
    if (type == "integer" || type == "number") return number(schema, type == "integer");
    if (type == "string") return text(schema);
    Json out = type == "array" ? Json::array() : Json::object();
    if (type == "array") {
      const int low = schema.value("minItems", 0);
      for (int n = low + below(schema.value("maxItems", 5) - low + 1); n > 0; --n)
        out.push_back(value(schema["items"]));
      return out;
    }
    const Json required = schema.value("required", Json::array());
    for (const auto& [name, member] : schema["properties"].items())
      if (std::find(required.begin(), required.end(), name) != required.end() || chance()) out[name] = value(member);
    if (schema.contains("additionalProperties") && schema["additionalProperties"] != false && chance())
      out["other " + std::to_string(below(9))] = value(schema["additionalProperties"]);
    return out;
  }

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool chance() { return below(2) == 0; }

 private:
  Json one_of(const Json& list) { return list[static_cast<std::size_t>(below(static_cast<int>(list.size())))]; }

  Json listed() {
    Json out = Json::array();
    for (int n = 1 + below(4); n > 0; --n) {
      switch (below(5)) {
        case 0:
          out.push_back(below(1000) - 500);
          break;
        case 1:
          out.push_back(nullptr);
          break;
        case 2:
          out.push_back("a \"quoted\" text, \xc3\xa9\n");
          break;
        case 3:
          out.push_back(Json{{"x", {1, 2.5}}});
          break;
        default:
          out.push_back("word " + std::to_string(below(20)));
      }
    }
    return out;
  }

  Json bounded(Json schema, int low, int high) {
    const bool whole = schema["type"] == "integer";
    const double from = low + below(high - low), span = whole ? below(60) : below(400) / 100.0;
    if (chance()) schema["minimum"] = whole ? Json(static_cast<int>(from)) : Json(from);
    if (chance()) schema["maximum"] = whole ? Json(static_cast<int>(from + span)) : Json(from + span);
    if (!schema.contains("minimum") && below(3) == 0) schema["exclusiveMinimum"] = from - 1;
    return schema;
  }

  Json text_schema() {
    Json out{{"type", "string"}, {"maxLength", 1 + below(12)}};
    if (below(4) == 0) {
      static constexpr const char* kPatterns[] = {"^[a-z]{1,8}$", "^\\d{4}-\\d{2}$", "^(yes|no|[\"\\\\]{2})$",
                                                  "^.{0,5}!$"};
      return {{"type", "string"}, {"pattern", kPatterns[below(4)]}};
    }
    if (chance()) out["minLength"] = below(out["maxLength"].get<int>() + 1);
    return out;
  }

  Json array(int depth) {
    Json out{{"type", "array"}, {"items", schema(depth - 1)}, {"maxItems", below(5)}};
    if (chance()) out["minItems"] = below(out["maxItems"].get<int>() + 1);
    return out;
  }

  Json object(int depth) {
    static constexpr const char* kNames[] = {"name", "zeta", "a", "na", "\"q\"", "\xc3\xa9t\xc3\xa9", "value", "names"};
    Json out{{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
    for (int n = 1 + below(4); n > 0; --n) {
      const std::string name = kNames[below(8)];
      if (out["properties"].contains(name)) continue;
      out["properties"][name] = schema(depth - 1);
      if (chance()) out["required"].push_back(name);
    }
    if (below(4) == 0) out["additionalProperties"] = false;
    if (others_ && below(4) == 0) out["additionalProperties"] = schema(0);
    return out;
  }

  Json number(const Json& schema, bool whole) {
    const double low = schema.contains("minimum")            ? schema["minimum"].get<double>()
                       : schema.contains("exclusiveMinimum") ? schema["exclusiveMinimum"].get<double>() + 1
                                                             : -50;
    const double high = schema.contains("maximum") ? schema["maximum"].get<double>() : low + 100;
    if (whole) {
      const auto from = static_cast<int>(std::ceil(low));
      return from + below(std::max(static_cast<int>(std::floor(high)) - from, 0) + 1);
    }
    const double middle = std::round((low + (high - low) * below(1001) / 1000.0) * 100) / 100;
    return middle < low || middle > high ? low : middle;
  }

  Json text(const Json& schema) {
    if (schema.contains("pattern")) {
      const auto pattern = schema["pattern"].get<std::string>();
      return pattern.starts_with("^[a-z]")  ? "abc"
             : pattern.starts_with("^\\d")  ? "2024-07"
             : pattern.starts_with("^(yes") ? (chance() ? "no" : "\"\\")
                                            : "\xe2\x82\xac!";
    }
    static constexpr const char* kCharacters[] = {"a", "\"", "\\", "\n", "\xc3\xa9", "\xf0\x9f\x98\x80", " ", "\t"};
    const int low = schema.value("minLength", 0);
    std::string out;
    for (int n = low + below(schema.value("maxLength", 12) - low + 1); n > 0; --n) out += kCharacters[below(8)];
    return out;
  }

  std::mt19937 random_;
  bool others_;
};

}  // namespace baton::test
