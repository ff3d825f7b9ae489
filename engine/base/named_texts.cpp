// SPDX-License-Identifier: Apache-2.0
#include <baton/named_texts.h>

#include <algorithm>
#include <stdexcept>

namespace baton {

NamedTexts::NamedTexts(std::initializer_list<value_type> texts) {
  for (const value_type& text : texts) (*this)[text.first] = text.second;
}

const std::string& NamedTexts::at(std::string_view name) const {
  if (const const_iterator found = find(name); found != end()) return found->second;
  std::string message = "there is no '" + std::string(name) + "'; there are:";
  for (const value_type& text : texts_) message += (&text == &texts_.front() ? " " : ", ") + text.first;
  throw std::out_of_range(texts_.empty() ? "there is no '" + std::string(name) + "', and nothing else" : message);
}

std::string& NamedTexts::operator[](std::string_view name) {
  const auto found =
      std::find_if(texts_.begin(), texts_.end(), [&](const value_type& text) { return text.first == name; });
  if (found != texts_.end()) return found->second;
  return texts_.emplace_back(std::string(name), std::string()).second;
}

NamedTexts::const_iterator NamedTexts::find(std::string_view name) const {
  return std::find_if(begin(), end(), [&](const value_type& text) { return text.first == name; });
}

}  // namespace baton
