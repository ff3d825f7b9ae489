// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sdk/console/html.h"
#include "sdk/console/text.h"
#include "sdk/lab/verbs.h"

namespace baton::inline v1::lab {
using namespace cli;

Markup begin_svg(double width, double height, double left, const std::string& title) {
  return html(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' font-family='sans-serif' "
      "font-size='12' fill='#333'>\n"
      "<style>.grid{{stroke:#e4e4e4}}.end{{text-anchor:end}}.middle{{text-anchor:middle}}</style>\n"
      "<rect width='{0}' height='{1}' fill='#fff'/>\n"
      "<text x='{2}' y='22' font-size='15' font-weight='bold'>{3}</text>\n",
      width, height, left, escaped(title));
}

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

// The profile of a model as SVG: two or three panels over one axis of layers.

namespace {

constexpr double kProfileWidth = 720, kProfileLeft = 70, kProfileRight = 24;
constexpr double kProfileTitle = 72, kUpper = 230, kProfileGap = 34, kLower = 120, kProfileBelow = 66;

/// A round step that cuts [low, 1] into at most `pieces`.
double profile_step_for(double low, double pieces) {
  for (const double step : {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2}) {
    if ((1 - low) / step <= pieces) return step;
  }
  return 0.5;
}

class PlotPanel {
 public:
  PlotPanel(double top, double height, int layers, const std::vector<double>& values, const std::vector<double>& errors)
      : top_(top), height_(height), layers_(layers), values_(values), errors_(errors) {
    double lowest = 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isnan(values[i])) lowest = std::min(lowest, values[i] - error(i));
    }
    step_ = profile_step_for(std::max(lowest, -1.0), height / 35);
    low_ = std::max(-1.0, std::floor(lowest / step_) * step_);
    if (1 - low_ < step_) low_ = 1 - step_;
  }

  double x(double layer) const {
    return kProfileLeft + 10 + layer * (kProfileWidth - kProfileLeft - kProfileRight - 20) / std::max(1, layers_ - 1);
  }

  Markup axes(const std::string& title) const {
    Markup out;
    for (int i = 0; low_ + i * step_ <= 1 + step_ / 2; ++i) {
      const double value = low_ + i * step_;
      out += html(
          "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' class='grid'/><text x='{}' y='{:.1f}' "
          "class='end'>{:.{}f}</text>\n",
          kProfileLeft, kProfileWidth - kProfileRight, y(value), y(value), kProfileLeft - 8, y(value) + 4, value,
          step_ < 0.01 ? 3 : 2);
    }
    const double middle = top_ + height_ / 2;
    return out + html("<text class='middle' transform='translate(18 {:.1f}) rotate(-90)'>{}</text>\n", middle, title);
  }

  Markup curve(const std::string& colour) const {
    Markup out;
    for (std::size_t begin = 0; begin < values_.size();) {  // unknown values split the curve
      std::size_t end = begin;
      while (end < values_.size() && !std::isnan(values_[end])) ++end;
      if (end > begin) out += piece(begin, end, colour);
      begin = end + 1;
    }
    return out;
  }

 private:
  double y(double value) const { return top_ + (1 - value) / (1 - low_) * height_; }
  double error(std::size_t i) const { return i < errors_.size() && !std::isnan(errors_[i]) ? errors_[i] : 0.0; }

  Markup piece(std::size_t begin, std::size_t end, const std::string& colour) const {
    Markup upper, lower, line, dots;
    for (std::size_t i = begin; i < end; ++i) {
      const double at = x(static_cast<double>(i));
      upper += html("{:.1f},{:.1f} ", at, y(std::min(1.0, values_[i] + error(i))));
      lower = html("{:.1f},{:.1f} ", at, y(std::max(low_, values_[i] - error(i)))) + lower;
      line += html("{:.1f},{:.1f} ", at, y(values_[i]));
      dots += html("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='{}'/>\n", at, y(values_[i]), colour);
    }
    return html(
               "<polygon points='{}{}' fill='{}' opacity='0.2'/>\n<polyline points='{}' fill='none' stroke='{}' "
               "stroke-width='1.8'/>\n",
               upper, lower, colour, line, colour) +
           dots;
  }

  double top_, height_;
  int layers_;
  const std::vector<double>& values_;
  const std::vector<double>& errors_;
  double step_ = 0.1, low_ = 0;
};

}  // namespace

Markup profile_svg(const ModelProfile& profile) {
  const auto layers = static_cast<int>(profile.similarity.size());
  const ProfiledRange range = profile.range();
  const PlotPanel upper(kProfileTitle, kUpper, layers, profile.similarity, profile.similarity_error);
  const PlotPanel lower(kProfileTitle + kUpper + kProfileGap, kLower, layers, profile.correlation,
                        profile.correlation_error);
  std::vector<double> left = profile.effect ? profile.effect->left_end : std::vector<double>();
  const std::vector<double> no_errors;
  for (double& share : left) share = std::min(share, 1.0);  // a NaN stays one
  const PlotPanel effect(kProfileTitle + kUpper + kLower + 2 * kProfileGap, kLower, layers, left, no_errors);
  const double bottom = kProfileTitle + kUpper + kProfileGap + kLower + (left.empty() ? 0.0 : kProfileGap + kLower);
  const double height = bottom + kProfileBelow;

  Markup out = begin_svg(kProfileWidth, height, kProfileLeft,
                         profile.model.filename().string() + ": which layers RelayCaching recomputes");
  out += html("<rect x='{:.1f}' y='{}' width='{:.1f}' height='{}' fill='#f3efe2'/>\n", upper.x(range.start),
              kProfileTitle, upper.x(range.end) - upper.x(range.start), bottom - kProfileTitle);
  out += upper.axes("similarity S") + lower.axes("correlation ρ");
  if (!left.empty()) out += effect.axes("KL left up to l");
  struct Mark {
    int layer;
    const char* name;
    double above;  // neighbours stand on different lines
  };
  for (const Mark& mark :
       {Mark{range.start, "start", 22}, Mark{range.detect, "detect", 8}, Mark{range.end, "end", 22}}) {
    const double x = upper.x(mark.layer);
    out += html("<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#a05a00' stroke-dasharray='4 3'/>\n", x,
                kProfileTitle, bottom);
    out += html("<text x='{:.1f}' y='{}' class='middle' fill='#a05a00'>{} {}</text>\n",
                std::min(x, kProfileWidth - kProfileRight - 22), kProfileTitle - mark.above, mark.name, mark.layer);
  }
  out += upper.curve("#1f5fa8") + lower.curve("#2a7d4f") + (left.empty() ? "" : effect.curve("#8a3f8f"));
  const int every = std::max(1, (layers + 19) / 20);
  for (int layer = 0; layer < layers; layer += every) {
    out += html("<text x='{:.1f}' y='{}' class='middle'>{}</text>\n", upper.x(layer), bottom + 18, layer);
  }
  out += html("<text x='{}' y='{}' class='middle'>layer</text>\n", (kProfileLeft + kProfileWidth - kProfileRight) / 2,
              bottom + 36);
  out += html(
      "<text x='{}' y='{}' class='end' font-size='10' fill='#777'>{} hand-overs ({}), {} tokens; bands: standard "
      "error</text>\n",
      kProfileWidth - kProfileRight, height - 8, profile.hand_overs, escaped(profile.source), profile.tokens);
  return out + "</svg>\n";
}

}  // namespace baton::inline v1::lab
