// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/text/hostile_texts.h"

#include <array>
#include <string_view>

#include "tests/support/golden_files.h"

namespace baton::test {
namespace {

constexpr std::array<std::string_view, 44> kUnits = {"a",
                                                     "b",
                                                     "A",
                                                     " ",
                                                     "  ",
                                                     "\n",
                                                     "\r\n",
                                                     "\t",
                                                     "9",
                                                     "=",
                                                     "-",
                                                     "'",
                                                     "'s",
                                                     "<",
                                                     ">",
                                                     "|",
                                                     "<|",
                                                     "<|im_start|>",
                                                     "</s>",
                                                     "ab",
                                                     "aA",
                                                     "a ",
                                                     " a",
                                                     "a\n",
                                                     ".",
                                                     "!?",
                                                     "\xC2\xA0",
                                                     "\xCC\x81",
                                                     "\xCC\xA7",
                                                     "\xCC\x81\xCC\xA7",
                                                     "\xD6\xB0",
                                                     "e\xCC\x81",
                                                     "\xC3\xA9",
                                                     "\xE4\xBD\xA0",
                                                     "\xEA\xB0\x80",
                                                     "\xE1\x84\x80",
                                                     "\xEF\xB7\xBA",
                                                     "\xF0\x9F\x98\x80",
                                                     "\xE2\x96\x81",
                                                     "\xFF",
                                                     "\xE2\x80\x8D",
                                                     "\xCD\x84",
                                                     "\xCE\xA3",
                                                     "the quick brown fox "};

Json changed(const Json& variant) {
  Json json = golden_json("tokenizers/" + variant["base"].get<std::string>() + ".json");
  for (const auto& [key, value] : variant["changes"].items()) {
    if (key == "model") {
      json["model"].update(value);
    } else if (key == "more_added_tokens") {
      for (const Json& token : value) json["added_tokens"].push_back(token);
    } else {
      json[key] = value;
    }
  }
  return json;
}

std::shared_ptr<const Tokenizer> parse(const Json& json) { return Tokenizer::parse(json.dump(), "hostile"); }

Json with(const std::string& key, const Json& value) {
  Json json = golden_json("tokenizers/gpt2.json");
  json[key] = value;
  return json;
}

Json split_at(const std::string& regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
}

Json pre_tokenizers(const std::vector<std::string>& regexes) {
  Json list = Json::array();
  for (const std::string& regex : regexes) list.push_back(split_at(regex));
  list.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", list}};
}

Json replacements(const std::vector<std::pair<Json, std::string>>& pairs) {
  Json list = Json::array();
  for (const auto& [pattern, content] : pairs)
    list.push_back({{"type", "Replace"}, {"pattern", pattern}, {"content", content}});
  return {{"type", "Sequence"}, {"normalizers", list}};
}

Json added(const std::string& content, bool special, bool lstrip, bool rstrip, int id) {
  return {{"id", id},         {"content", content}, {"special", special},  {"normalized", false},
          {"lstrip", lstrip}, {"rstrip", rstrip},   {"single_word", false}};
}

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += unit;
  return out;
}

}  // namespace

std::string RepeatedText::of(std::size_t bytes) const { return before + repeated(unit, bytes) + after; }

std::vector<SlowPattern> slow_patterns() {
  std::vector<SlowPattern> out;
  for (const char* regex :
       {"(?:a+b|a)", "a+(?=b)|a", "(?:a+b|a)+c", ".*x|.", "(?:.*){3}x|.", "a{255}b|a", "(?<=a{255})b|a",
        "[\\s\\S]*?z|a", "(?i:a+)+b|[ab]", R"((?:\w+\s?)+!)", "(?=(?:a+)+b)|a", "a*+b|a", R"(\w*+!|\w)"})
    out.push_back({regex, {"a"}});
  out.push_back({"(a|aa)+$", {"a", "", "b"}});
  out.push_back({R"(\s+$)", {" ", "", "x"}});
  out.push_back({R"(\s*\n|\s)", {" ", "", "x"}});
  return out;
}

std::vector<TextSubject> honest_tokenizers() {
  std::vector<TextSubject> out;
  for (const std::string name : {"gpt2", "llama3", "qwen", "sp_normalizer", "sp_metaspace"})
    out.push_back({name, Tokenizer::parse(golden_text("tokenizers/" + name + ".json"), name)});
  for (const Json& variant : golden_json("tokenizers/variants.json")) {
    const std::string name = variant["name"];
    // Compatibility forms make 18 characters of U+FDFA, in the alphabet of bytes 66 bytes of 3. No published tokenizer
    // has both.
    out.push_back({name, parse(changed(variant)), name.starts_with("NFK")});
  }
  const std::string marks = R"(\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})", small = R"(\p{Ll}\p{Lm}\p{Lo}\p{M})";
  const std::string endings = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
  const std::string o200k = R"([^\r\n\p{L}\p{N}]?[)" + marks + "]*[" + small + "]+" + endings +
                            R"(|[^\r\n\p{L}\p{N}]?[)" + marks + "]+[" + small + "]*" + endings +
                            R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  out.push_back({"o200k", parse(with("pre_tokenizer", pre_tokenizers({o200k})))});
  const std::string deepseek = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
                               R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  out.push_back({"deepseek", parse(with("pre_tokenizer",
                                        pre_tokenizers({R"(\p{N}{1,3})", "[\xE4\xB8\x80-\xE9\xBE\xA5]+", deepseek})))});
  return out;
}

std::vector<TextSubject> hostile_tokenizers() {
  std::vector<TextSubject> out;
  const auto add = [&](const std::string& name, const Json& json, std::vector<RepeatedText> triggers) {
    out.push_back({name, parse(json), true, std::move(triggers)});
  };
  constexpr std::size_t kLong = 1'000'000;  // comparing it with each place of a long text takes seconds
  const std::vector<RepeatedText> run = {{"a"}};
  const std::vector<std::pair<Json, std::string>> growing(20, {{{"String", "a"}}, "aa"});
  add("replacements that grow", with("normalizer", replacements(growing)), run);
  add("a replacement of nothing", with("normalizer", replacements({{{{"Regex", ""}}, "abcdefgh"}})), run);
  add("a long replacement", with("normalizer", replacements({{{{"String", " "}}, std::string(100'000, 'x')}})),
      {{" "}, {"a", " "}});
  add("a long prefix", with("normalizer", {{"type", "Prepend"}, {"prepend", std::string(100'000, 'a')}}), run);
  add("a long text to replace", with("normalizer", replacements({{{{"String", std::string(kLong, 'a') + "b"}}, ""}})),
      {{"a"}, {std::string(kLong - 1, 'a') + "b"}});
  out.back().times = 16;
  Json levels = Json::array();
  for (int i = 0; i < 20; ++i) levels.push_back({{"type", "ByteLevel"}, {"add_prefix_space", true}});
  add("bytes of bytes", with("pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", levels}}),
      {{"\xC3\xA9"}, {" "}, {"!a"}});
  for (const auto& [regex, trigger] : slow_patterns()) {
    add("the pattern " + regex, with("pre_tokenizer", pre_tokenizers({regex})), {trigger});
    add("a replacement of " + regex, with("normalizer", replacements({{{{"Regex", regex}}, "_"}})), {trigger});
  }
  std::string wide = "[^";
  for (int i = 0; i < 1000; ++i) wide += "\\x{" + std::to_string(1000 + 3 * i) + "}";
  add("a wide class", with("pre_tokenizer", pre_tokenizers({wide + "]+|."})), {{"a"}, {"\xE1\x80\x80"}});
  Json tokens = with("decoder", nullptr);
  tokens["added_tokens"].push_back(added(std::string(kLong, 'a') + "b", true, false, false, 5000));
  tokens["added_tokens"].push_back(added("x" + std::string(20'000, ' '), true, false, false, 5001));
  tokens["added_tokens"].push_back(added(std::string(20'000, 'c'), true, false, false, 5002));
  tokens["added_tokens"].push_back(added("aa", true, false, false, 5003));
  add("long added tokens", tokens,
      {{"a"},
       {"a", "", "b"},
       {std::string(kLong - 1, 'a') + "b"},
       {" "},
       {"x" + std::string(19'999, ' ')},
       {std::string(19'999, 'c') + "d"}});
  out.back().times = 16;
  for (const bool left : {true, false}) {
    Json blanks = with("decoder", nullptr);
    blanks["added_tokens"].push_back(added(" ", true, left, true, 5000));
    blanks["added_tokens"].push_back(added("\n", true, true, !left, 5001));
    blanks["added_tokens"].push_back(added("\t", false, left, !left, 5002));
    add(left ? "blanks stripped" : "blanks stripped at the right", blanks,
        {{" "}, {"\n"}, {"\t"}, {" ", "x", "x"}, {" \n\t"}, {"\xC2\xA0", " ", "\n"}});
  }
  return out;
}

std::vector<TextSubject> growing_tokenizers() {
  std::vector<TextSubject> out;
  const auto add = [&](const std::string& name, const std::string& content, const Json& split, Json json) {
    Json normalizer = replacements({{{{"String", "a"}}, content}});
    if (!json["normalizer"].is_null()) normalizer["normalizers"].push_back(json["normalizer"]);
    json["normalizer"] = normalizer;
    json["pre_tokenizer"] = split;
    out.push_back({name, parse(json), true});
  };
  const Json plain = with("normalizer", nullptr);
  const std::string sixteen(16, 'b');
  add("one word", sixteen, nullptr, plain);
  add("words of one character", sixteen, {{"type", "Split"}, {"pattern", {{"String", "b"}}}, {"behavior", "Isolated"}},
      plain);
  add("words by a regular expression", sixteen, split_at("b"), plain);
  add("every other character", "bcbcbcbcbcbcbcbc", split_at("b"), plain);
  add("digits", std::string(16, '1'), {{"type", "Digits"}, {"individual_digits", true}}, plain);
  add("replaced twice", sixteen, nullptr, with("normalizer", replacements({{{{"Regex", "b"}}, "c"}})));
  std::string ligatures;
  for (int i = 0; i < 5; ++i) ligatures += "\xEF\xB7\xBA";
  add("compatibility characters", ligatures, nullptr, with("normalizer", {{"type", "NFKC"}}));
  Json token = with("normalizer", nullptr);
  token["added_tokens"].push_back(added("b", false, false, false, token["model"]["vocab"]["b"]));
  token["added_tokens"].back()["normalized"] = true;
  add("an added token", sixteen, nullptr, token);
  Json merges = with("normalizer", nullptr);
  Json& model = merges["model"];
  std::size_t id = 6000;
  for (const std::string text : {"bb", "bbbb", "bbbbbbbb"}) {
    if (!model["vocab"].contains(text)) model["vocab"][text] = id++;
    const std::string half = text.substr(text.size() / 2);
    model["merges"].push_back(half + " " + half);
  }
  add("one word that merges", std::string(12, 'b'), nullptr, merges);
  return out;
}

std::shared_ptr<const Tokenizer> hostile_decoder(const SlowPattern& pattern, int replacements) {
  Json steps = Json::array();
  for (int i = 0; i < replacements; ++i)
    steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", pattern.regex}}}, {"content", pattern.trigger.unit}});
  Json json = with("decoder", {{"type", "Sequence"}, {"decoders", steps}});
  const std::size_t ids = json["model"]["vocab"].size() + json["added_tokens"].size();
  for (std::size_t i = 0; i < 1000; ++i) json["model"]["vocab"][std::to_string(i) + pattern.trigger.of(600)] = ids + i;
  return parse(json);
}

std::string hostile_text(std::mt19937& random, std::size_t bytes) {
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  const auto unit = [&] { return kUnits[below(kUnits.size())]; };
  switch (below(6)) {
    case 0:
      return repeated(unit(), bytes);
    case 1:
      return std::string(unit()) + repeated(unit(), bytes) + std::string(unit());
    case 2:
      return repeated(unit(), bytes / 2) + repeated(unit(), bytes / 2);
    case 3: {  // long runs of one unit with another one between them
      std::string out;
      const std::string run = repeated(unit(), 1 + below(bytes / 4 + 1));
      const std::string_view between = unit();
      while (out.size() < bytes) out.append(run).append(between);
      return out;
    }
    case 4: {  // a few units in any order
      const std::array<std::string_view, 3> some = {unit(), unit(), unit()};
      std::string out(unit());
      while (out.size() < bytes) out += some[below(some.size())];
      return out;
    }
    default: {
      std::string out;
      while (out.size() < bytes) out += unit();
      return out;
    }
  }
}

}  // namespace baton::test
