// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/profile_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sdk/cli/console/text.h"

namespace baton::cli {
namespace {

/// A picture of dots: 2 x 4 in a character of braille, one in a character of ASCII.
class Canvas {
 public:
  Canvas(int columns, int rows, bool ascii)
      : columns_(columns), rows_(rows), ascii_(ascii), dots_(static_cast<std::size_t>(width() * height()), false) {}
  int width() const { return columns_ * (ascii_ ? 1 : 2); }
  int height() const { return rows_ * (ascii_ ? 1 : 4); }

  void line(double x0, double y0, double x1, double y1) {
    const int steps = std::max(1, static_cast<int>(std::ceil(std::max(std::abs(x1 - x0), std::abs(y1 - y0)))));
    for (int i = 0; i <= steps; ++i) dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
  }

  std::string row(int row) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      if (ascii_) {
        text += at(column, row) ? '*' : ' ';
        continue;
      }
      static const int dots[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
      int bits = 0;
      for (int y = 0; y < 4; ++y) {
        for (int x = 0; x < 2; ++x) bits |= at(2 * column + x, 4 * row + y) ? dots[y][x] : 0;
      }
      if (bits == 0) {
        text += ' ';
        continue;
      }
      text += '\xE2';  // U+2800 and the dots, in UTF-8
      text += static_cast<char>(0xA0 | (bits >> 6));
      text += static_cast<char>(0x80 | (bits & 0x3F));
    }
    return text;
  }

 private:
  void dot(double x, double y) {
    const int column = std::clamp(static_cast<int>(std::lround(x)), 0, width() - 1);
    const int row = std::clamp(static_cast<int>(std::lround(y)), 0, height() - 1);
    dots_[static_cast<std::size_t>(row * width() + column)] = true;
  }
  bool at(int x, int y) const { return dots_[static_cast<std::size_t>(y * width() + x)]; }

  int columns_, rows_;
  bool ascii_;
  std::vector<bool> dots_;
};

struct Axis {
  double low = 0;
  double high = 1;
  double share(double value) const { return (value - low) / (high - low); }  // 0 at low, 1 at high
};

/// From a round number below all values to 1.
Axis axis_for(const std::vector<double>& values) {
  double low = 1;
  for (const double value : values) low = std::isnan(value) ? low : std::min(low, value);
  for (const double step : {0.001, 0.005, 0.01, 0.05, 0.1}) {
    if (1 - low <= 10 * step) return {std::max(-1.0, std::floor(low / step) * step), 1};
  }
  return {std::max(-1.0, std::floor(low / 0.25) * 0.25), 1};
}

constexpr int kLabel = 6;  // columns of the numbers on the left, with a blank

std::string panel(const std::string& title, const std::vector<double>& values, int layers, int columns, int rows,
                  bool ascii) {
  Canvas canvas(columns, rows, ascii);
  const Axis axis = axis_for(values);
  const auto x = [&](std::size_t layer) {
    return static_cast<double>(layer) * (canvas.width() - 1) / std::max(1, layers - 1);
  };
  const auto y = [&](double value) { return (1 - axis.share(value)) * (canvas.height() - 1); };
  for (std::size_t l = 0; l < values.size(); ++l) {
    if (std::isnan(values[l])) continue;
    const bool joined = l > 0 && !std::isnan(values[l - 1]);
    canvas.line(x(joined ? l - 1 : l), y(values[joined ? l - 1 : l]), x(l), y(values[l]));
  }
  std::string text = title + "\n";
  for (int row = 0; row < rows; ++row) {
    const bool labelled = row == 0 || row == rows - 1;
    const double value = row == 0 ? axis.high : axis.low;
    std::string line = padded_left(labelled ? fmt::format("{:.{}f}", value, axis.low > 0.99 ? 3 : 2) : "", kLabel - 1);
    line += ascii ? (labelled ? "+" : "|") : (labelled ? "┤" : "│");
    line += canvas.row(row);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

/// Texts under their columns; where one would meet the one before it, it moves right.
std::string under(const std::vector<std::pair<int, std::string>>& texts, int columns) {
  std::string line(static_cast<std::size_t>(kLabel + columns), ' ');
  std::size_t free = 0;
  for (const auto& [column, text] : texts) {
    const std::size_t at = std::max(
        free, static_cast<std::size_t>(kLabel + std::clamp(column, 0, columns - static_cast<int>(text.size()))));
    if (at + text.size() > line.size()) line.resize(at + text.size(), ' ');
    line.replace(at, text.size(), text);
    free = at + text.size();
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string profile_plot(const ModelProfile& profile, int columns, bool ascii) {
  const auto layers = static_cast<int>(profile.similarity.size());
  const int width = std::clamp(std::min(columns - kLabel - 1, std::max(40, 2 * layers)), 8, 100);
  const auto column = [&](int layer) {
    return static_cast<int>(std::lround(static_cast<double>(layer) * (width - 1) / std::max(1, layers - 1)));
  };
  const ProfiledRange range = profile.range();
  std::string text =
      panel("S: similarity of decoded and prefilled values", profile.similarity, layers, width, ascii ? 12 : 8, ascii);
  std::string floor;
  for (int i = 0; i < width; ++i) {
    const bool mark = i == column(range.start) || i == column(range.detect) || i == column(range.end);
    floor += ascii ? (mark ? "^" : "-") : (mark ? "┴" : "─");
  }
  text += std::string(kLabel - 1, ' ') + (ascii ? "+" : "└") + floor + "\n";
  text += under({{column(range.start), "s"}, {column(range.detect), "d"}, {column(range.end), "e"}}, width);
  text += under({{0, "0"}, {width / 2 - 2, "layer"}, {width, std::to_string(layers - 1)}}, width);
  text += panel(ascii ? "rho: correlation with the next layer" : "ρ: correlation with the next layer",
                profile.correlation, layers, width, ascii ? 6 : 4, ascii);
  if (profile.effect) {
    text += panel("KL left, recomputing all reused tokens up to this layer", profile.effect->left_end, layers, width,
                  ascii ? 6 : 4, ascii);
  }
  std::string cut;
  for (std::size_t begin = 0; begin < text.size();) {  // titles are longer than the narrowest terminals
    const std::size_t end = text.find('\n', begin);
    cut += head(std::string_view(text).substr(begin, end - begin), columns) + "\n";
    begin = end + 1;
  }
  return cut;
}

}  // namespace baton::cli
