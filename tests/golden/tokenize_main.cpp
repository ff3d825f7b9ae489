// SPDX-License-Identifier: Apache-2.0
// Answers questions about a tokenizer.json or a model's tokenizer, one a line, for check_tokenizers.py and
// tests/published/greedy_peer.py. Texts are hexadecimal.
//   r HEX  ids, special tokens recognised      t HEX  ids, special tokens as text      b HEX  ids with the template
//   p HEX HEX ...  ids of a text in pieces
//   d IDS  text (hex), special tokens kept     s IDS  the same without them, from a StreamDecoder
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "engine/base/errors.h"
#include "engine/model/model.h"
#include "engine/text/text_ids.h"
#include "engine/text/tokenizer.h"

namespace {

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

std::string to_hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) out += {kDigits[byte >> 4], kDigits[byte & 15]};
  return out;
}

std::vector<baton::TokenId> to_ids(const std::string& words) {
  std::istringstream in(words);
  return {std::istream_iterator<baton::TokenId>(in), {}};
}

std::string streamed(const baton::Tokenizer& tokenizer, const std::vector<baton::TokenId>& ids) {
  baton::StreamDecoder decoder(tokenizer, true);
  std::string out;
  for (const auto id : ids) out += decoder.push(id);
  return out + decoder.finish();
}

std::vector<baton::TokenId> ids_of_pieces(const baton::Tokenizer& tokenizer, const std::string& pieces) {
  baton::NextPiece next(tokenizer);
  std::vector<baton::TokenId> all;
  std::istringstream in(pieces);
  for (std::string hex; in >> hex;) {
    const auto ids = tokenizer.encode_piece(from_hex(hex), baton::SpecialTokens::recognise, next.start());
    next.follow(ids);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

std::string answer(const baton::Tokenizer& tokenizer, char question, const std::string& rest) {
  using baton::SpecialTokens;
  if (question == 'd') return to_hex(tokenizer.decode(to_ids(rest), false));
  if (question == 's') return to_hex(streamed(tokenizer, to_ids(rest)));
  const std::string text = question == 'p' ? "" : from_hex(rest);
  const auto ids = question == 'p'   ? ids_of_pieces(tokenizer, rest)
                   : question == 'b' ? tokenizer.encode_with_template(text)
                   : question == 't' ? tokenizer.encode(text, SpecialTokens::as_text)
                                     : tokenizer.encode(text, SpecialTokens::recognise);
  std::string out;
  for (const auto id : ids) out += std::to_string(id) + ' ';
  return out;
}

std::shared_ptr<const baton::Tokenizer> tokenizer_of(const std::string& path) {
  if (!path.ends_with(".json")) return baton::open_model_files(path)->text().tokenizer;
  std::ifstream file(path, std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  return baton::Tokenizer::parse(json, path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: baton_tokenize_check TOKENIZER_JSON|MODEL < questions\n";
    return 2;
  }
  try {
    const auto tokenizer = tokenizer_of(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      if (line.size() >= 2) std::cout << answer(*tokenizer, line[0], line.substr(2));
      std::cout << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
