// SPDX-License-Identifier: Apache-2.0
#include "engine/model/word_rules.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "engine/text/pretokenizer.h"

namespace baton {
namespace {

using text::Json;

template <std::size_t N>
using Expressions = std::array<std::string_view, N>;

// The expressions are those of the models' own tokenizer.json files.
constexpr std::string_view kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Words = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                                          R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Words = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                         R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseek3Words = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
                                             R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
                                             R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kKana = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kOldDeepseekHan = R"([\x{800}-\x{9fa5}\x{ac00}-\x{d7ff}]+)";
constexpr std::string_view kBloomWords = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";
constexpr std::string_view kDigit = R"(\p{N})", kThreeDigits = R"(\p{N}{1,3})";

constexpr Expressions<1> kGpt2 = {kGpt2Words};
constexpr Expressions<2> kSingleDigits = {kDigit, kGpt2Words};
constexpr Expressions<1> kLlama3 = {kLlama3Words};
constexpr Expressions<1> kQwen2 = {kQwen2Words};
constexpr Expressions<1> kQwen35 = {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                                    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Expressions<1> kTekken = {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Expressions<1> kGpt4o = {kGpt4oWords};
constexpr Expressions<2> kTinyAya = {R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4oWords};
constexpr Expressions<3> kDeepseek3 = {kThreeDigits, kKana, kDeepseek3Words};
constexpr Expressions<4> kSpark = {kThreeDigits, kKana,
                                   R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
                                   R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)",
                                   kDigit};
constexpr Expressions<3> kAfmoe = {
    R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))",
    R"([\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{f900}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30ff}\x{ff65}-\x{ff9f})"
    R"(\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff}\x{1000}-\x{109f}\x{aa60}-\x{aa7f})"
    R"(\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}]+)",
    kDeepseek3Words};
constexpr Expressions<2> kYoutu = {
    R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+)"
    R"(|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f})"
    R"(\x{fe30}-\x{fe4f}]+|[\x{3105}-\x{312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Expressions<5> kDeepseekCoder = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kOldDeepseekHan, kDigit};
constexpr Expressions<6> kDeepseekLlm = {
    R"([\r\n])",
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5})"
    R"(\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd})"
    R"(\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15})"
    R"(\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d})"
    R"(\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb})"
    R"(\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d})"
    R"(\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e})"
    R"(\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d})"
    R"(\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06})"
    R"(\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb})"
    R"(\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)",
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)",
    R"(\s+$)",
    kOldDeepseekHan,
    R"(\p{N}+)"};
constexpr Expressions<3> kFalcon = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Words, R"([0-9][0-9][0-9])"};
constexpr Expressions<1> kBloom = {kBloomWords};
constexpr Expressions<2> kViking = {kBloomWords, kDigit};
constexpr Expressions<6> kChameleon = {R"(<sentinel:[0-9]+>)",    R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)",
                                       R"(([\t\n]|    |  ))",     kDigit,
                                       R"([\p{P}!-/:-@\[-`{-~])", kGpt2Words};
constexpr Expressions<2> kSuperBpe = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"};
constexpr Expressions<1> kBailing = {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr Expressions<1> kSeedCoder = {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                       R"(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Expressions<1> kUfakzeka = {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                                      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Expressions<2> kLaguna = {R"([^\n]+|[\n]+)", kQwen2Words};
constexpr Expressions<1> kExaoneMoe = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr Expressions<2> kMiniCpm5 = {kThreeDigits, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+)"
                                                    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Expressions<1> kJais2 = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|(?:\s{128}){4}(?!\S)|(?:\s{128}){2}(?!\S)|\s{128}(?!\S))"
    R"(|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s)"};
// \p{Han} is taken out of the classes of letters.
constexpr Expressions<1> kKimi = {
    R"(\p{Han}+)"
    R"(|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr bool kWhole = true, kComposed = true, kBos = true;
constexpr WordRule kWordRules[] = {
    {"default", kGpt2},
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"jais", kGpt2},
    {"trillion", kGpt2},
    {"granite-docling", kGpt2},
    {"exaone4", kGpt2},
    {"gigachat", kGpt2},
    {"a.x-4.0", kGpt2},
    {"mellum", kGpt2},
    {"modern-bert", kGpt2},
    {"roberta-bpe", kGpt2},
    {"jina-es", kGpt2},
    {"jina-de", kGpt2},
    {"jina-v1-en", kGpt2},
    {"jina-v2-es", kGpt2},
    {"jina-v2-de", kGpt2},
    {"jina-v2-code", kGpt2},
    {"smollm", kSingleDigits},
    {"starcoder", kSingleDigits},
    {"refact", kSingleDigits},
    {"command-r", kSingleDigits},
    {"codeshell", kSingleDigits},
    {"exaone", kSingleDigits},
    {"minerva-7b", kSingleDigits},
    {"mellum2", kSingleDigits},
    {"llama-bpe", kLlama3, kWhole, false, kBos},
    {"llama3", kLlama3, kWhole, false, kBos},
    {"llama-v3", kLlama3, kWhole, false, kBos},
    {"falcon3", kLlama3, kWhole, false, kBos},
    {"falcon-h1", kLlama3, kWhole, false, kBos},
    {"pixtral", kLlama3, kWhole, false, kBos},
    {"lfm2", kLlama3, kWhole, false, kBos},
    {"midm-2.0", kLlama3, kWhole, false, kBos},
    {"jina-v5-nano", kLlama3, kWhole, false, kBos},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"glm4", kLlama3, kWhole},
    {"glm5", kLlama3, kWhole},
    {"minicpm5", kMiniCpm5, kWhole},
    {"jais-2", kJais2},
    {"qwen2", kQwen2, false, kComposed},
    {"deepseek-r1-qwen", kQwen2, false, kComposed},
    {"stablelm2", kQwen2},
    {"hunyuan", kQwen2},
    {"megrez", kQwen2},
    {"kormo", kQwen2},
    {"f2llmv2", kQwen2},
    {"grok-2", kQwen2},
    {"solar-open", kQwen2},
    {"qwen35", kQwen35, false, kComposed},
    {"bailingmoe", kBailing},
    {"bailingmoe2", kBailing},
    {"llada-moe", kBailing},
    {"seed-coder", kSeedCoder},
    {"ufakzeka", kUfakzeka},
    {"laguna", kLaguna},
    {"exaone-moe", kExaoneMoe},
    {"tekken", kTekken, kWhole, false, kBos},
    {"gpt-4o", kGpt4o},
    {"llama4", kGpt4o},
    {"kanana2", kGpt4o},
    {"talkie", kGpt4o},
    {"minimax-m2", kGpt4o},
    {"granite-embed-multi-97m", kGpt4o, kWhole},
    {"tiny_aya", kTinyAya},
    {"cohere2moe", kTinyAya},
    {"kimi-k2", kKimi},
    {"youtu", kYoutu, kWhole},
    {"deepseek-v3", kDeepseek3},
    {"hunyuan-dense", kDeepseek3},
    {"joyai-llm", kDeepseek3},
    {"hy_v4", kDeepseek3},
    {"spark2_5", kSpark},
    {"afmoe", kAfmoe},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-coder", kDeepseekCoder},
    {"falcon", kFalcon},
    {"bloom", kBloom},
    {"gpt3-finnish", kBloom},
    {"poro-chat", kBloom},
    {"viking", kViking},
    {"chameleon", kChameleon, false, false, kBos},
    {"superbpe", kSuperBpe},
};

/// Rules that a vocabulary is compared with. Rules that hardly cut anything fit every vocabulary.
constexpr std::string_view kKnownFamilies[] = {"gpt-2",  "smollm", "llama-bpe",   "qwen2",  "qwen35",
                                               "tekken", "gpt-4o", "deepseek-v3", "kimi-k2"};

/// Cuts tokens as a rule does.
class Cutter {
 public:
  explicit Cutter(const WordRule& rule) {
    const Json steps = word_steps(rule);
    words_ = text::PreTokenizer::parse(&steps, text::Where{"tokenizer.ggml.pre", ""});
  }
  bool cuts(const std::string& token) const {
    text::Words words{token, {{0, token.size()}}};
    text::TextWork work = text::TextWork::of_token("tokenizer.ggml.pre", token.size());
    words_.apply(words, work);
    return words.words.size() > 1;
  }

 private:
  text::PreTokenizer words_;
};

}  // namespace

std::span<const WordRule> word_rules() { return kWordRules; }

const WordRule* find_word_rule(std::string_view name) {
  const auto* found = std::ranges::find(kWordRules, name, &WordRule::name);
  return found == std::end(kWordRules) ? nullptr : found;
}

Json word_steps(const WordRule& rule) {
  Json steps = Json::array();
  for (const std::string_view expression : rule.expressions)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

double cut_fraction(const WordRule& rule, std::span<const std::string> tokens) {
  const Cutter cutter(rule);
  const auto cut = std::ranges::count_if(tokens, [&](const std::string& token) { return cutter.cuts(token); });
  return tokens.empty() ? 0.0 : static_cast<double>(cut) / static_cast<double>(tokens.size());
}

BetterRule better_rule(const WordRule& given, std::span<const std::string> tokens, std::string_view usual) {
  constexpr double kDoubtful = 0.02;     // above what any vocabulary has under its own rule
  constexpr double kMuchSmaller = 0.25;  // of the given rule's fraction
  if (tokens.empty()) return {};
  std::vector<std::string> cut;
  const Cutter own(given);
  std::ranges::copy_if(tokens, std::back_inserter(cut), [&](const std::string& token) { return own.cuts(token); });
  BetterRule best{nullptr, 0.0, static_cast<double>(cut.size()) / static_cast<double>(tokens.size())};
  if (best.given_cut < kDoubtful) return {};
  const double most = kMuchSmaller * best.given_cut;
  for (const std::string_view name : kKnownFamilies) {
    const WordRule& other = *find_word_rule(name);
    // The other tokens need a look only if the rule cuts few of those that the given one cuts.
    if (cut_fraction(other, cut) > kMuchSmaller) continue;
    const double fraction = cut_fraction(other, tokens);
    if (fraction > std::min(most, kDoubtful)) continue;
    const bool is_best = best.rule == nullptr || fraction < best.cut;
    if (name == usual || (is_best && (best.rule == nullptr || best.rule->name != usual))) {
      best.rule = &other;
      best.cut = fraction;
    }
  }
  return best.rule == nullptr ? BetterRule{} : best;
}

}  // namespace baton
