// SPDX-License-Identifier: Apache-2.0
// The live view: one line per agent, redrawn in place. The lines never reach the terminal's last column, so nothing
// wraps unless the window shrinks; then the rows that the old lines came to fill are counted anew.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include <baton/baton.h>
#include <baton/turns.h>

#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/console/view.h"

namespace baton::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFrame{100};
constexpr int kNarrow = 64;               // columns below which a line has no rate and no reuse
constexpr std::size_t kTailBytes = 1024;  // kept of an agent's text; more than any line shows

enum class State { waiting, tool, prefill, decoding, done, skipped, failed, cancelled };

struct ShownTurn {
  std::string agent;
  int round = 1;
  State state = State::waiting;
  std::size_t tools_left = 0;
  std::vector<std::size_t> needs;  // turns that come first
  std::int64_t output_tokens = 0;
  double prefilled = 0;    // fraction of the prompt
  bool tentative = false;  // `text` is not checked yet
  double tokens_per_s = 0;
  double reuse_rate = 0;
  double ahead_rate = 0;
  bool has_reuse = false;
  Clock::time_point first_token;
  std::string text;  // the last bytes of the output

  void take(const KvRecord& kv) {
    reuse_rate = kv.reuse_rate;
    ahead_rate = kv.entries > 0 ? static_cast<double>(kv.ahead) / static_cast<double>(kv.entries) : 0;
    has_reuse = kv.entries > 0;
  }
};

const char* name_of(State state) {
  static const char* const names[] = {"waiting", "tool",    "prefill", "decoding",
                                      "done",    "skipped", "failed",  "cancelled"};
  return names[static_cast<int>(state)];
}

Style style_of(State state) {
  static const Style styles[] = {Style::dim,   Style::blue,   Style::yellow, Style::cyan,
                                 Style::green, Style::yellow, Style::red,    Style::yellow};
  return styles[static_cast<int>(state)];
}

bool is_over(State state) { return state >= State::done; }

/// A line of the view, and its width on the screen.
struct ViewLine {
  std::string text;
  int width = 0;

  /// Adds what of `part` fits into `columns`.
  void add(Style style, const std::string& part, int columns) {
    const std::string fitting = head(part, columns - width);
    width += display_width(fitting);
    text += styled(style, fitting);
  }
};

/// The turns of a run as the events tell of them, and a line for each.
class ShownTurns {
 public:
  explicit ShownTurns(const Workflow& workflow) {
    for (const auto& planned : workflow.turns()) {
      ShownTurn turn;
      turn.agent = planned.agent;
      turn.round = planned.round;
      turn.tools_left = planned.tools.size();
      turn.needs.assign(planned.needs.begin(), planned.needs.end());
      agent_width_ = std::max(agent_width_, display_width(turn_name(planned.agent, planned.round)));
      turns_.push_back(std::move(turn));
    }
    agent_width_ = std::min(agent_width_, 24);
  }

  void take(const AgentStarted& event) {
    if (ShownTurn* turn = find(event.agent, event.round)) {
      turn->state = State::prefill;
      turn->output_tokens = 0;  // a second attempt starts anew
      turn->prefilled = 0;
      turn->tentative = false;
      turn->text.clear();
    }
  }
  void take(const Prefill& event) {
    if (ShownTurn* turn = find(event.agent, event.round)) {
      turn->state = State::decoding;
      turn->take(event.kv);
    }
  }
  void take(const Token& event) {
    ShownTurn* turn = find(event.agent, event.round);
    if (turn == nullptr) return;
    if (std::exchange(turn->tentative, false)) {  // the answer comes from its first token on
      turn->output_tokens = 0;
      turn->text.clear();
    }
    add(*turn, event.text);
  }
  void take(const TentativeToken& event) {
    ShownTurn* turn = find(event.agent, event.round);
    if (turn == nullptr) return;
    turn->tentative = true;
    add(*turn, event.text);
  }
  void take(const ThinkingToken& event) {
    ShownTurn* turn = find(event.agent, event.round);
    if (turn == nullptr) return;
    turn->tentative = true;  // the answer replaces it
    add(*turn, event.text);
  }
  void take(const Confirmed& event) {
    ShownTurn* turn = find(event.agent, event.round);
    if (turn == nullptr || !std::exchange(turn->tentative, false)) return;
    turn->output_tokens = 0;  // nothing of it stays
    turn->text.clear();
  }
  void take(const ToolCalled& event) {
    ShownTurn* turn = find(event.agent, event.round);
    if (turn != nullptr && turn->tools_left > 0) --turn->tools_left;
  }
  void take(const AgentFinished& event) {
    const AgentRecord& record = event.record;
    ShownTurn* turn = find(record.agent, record.round);
    if (turn == nullptr) return;
    turn->state = record.state == TurnState::ok          ? State::done
                  : record.state == TurnState::skipped   ? State::skipped
                  : record.state == TurnState::cancelled ? State::cancelled
                                                         : State::failed;
    turn->output_tokens = record.output_tokens;
    turn->tokens_per_s = record.tokens_per_s;
    turn->take(record.kv);
    turn->text = record.output.empty() ? record.error : record.output;
    if (turn->text.size() > kTailBytes && turn->state == State::failed) turn->text.resize(kTailBytes);
  }
  void take(const PrefillProgress& event) {
    ShownTurn* turn = find(event.agent, event.round);
    if (turn == nullptr || event.prompt_tokens < 1) return;
    turn->prefilled = static_cast<double>(event.tokens) / static_cast<double>(event.prompt_tokens);
  }
  template <typename Other>
  void take(const Other&) {}  // Relayed, RunFinished; what is asked the runner itself asks

  std::size_t size() const { return turns_.size(); }
  std::ptrdiff_t over() const {
    return std::count_if(turns_.begin(), turns_.end(), [](const ShownTurn& turn) { return is_over(turn.state); });
  }

  /// The lines of at most `room` turns.
  std::vector<ViewLine> lines(std::size_t room, int columns) const {
    std::vector<ViewLine> lines;
    for (const std::size_t i : shown_turns(room)) lines.push_back(line_of(turns_[i], columns));
    return lines;
  }

 private:
  static void add(ShownTurn& turn, const std::string& text) {
    turn.state = State::decoding;
    if (turn.output_tokens++ == 0) turn.first_token = Clock::now();
    turn.text += text;
    if (turn.text.size() > 2 * kTailBytes) {
      std::size_t from = turn.text.size() - kTailBytes;
      while (from < turn.text.size() && continues_character(turn.text[from])) ++from;  // to the start of a character
      turn.text.erase(0, from);
    }
  }
  ShownTurn* find(const std::string& agent, int round) {
    const auto found = std::find_if(turns_.begin(), turns_.end(),
                                    [&](const ShownTurn& turn) { return turn.agent == agent && turn.round == round; });
    return found == turns_.end() ? nullptr : &*found;
  }

  /// A turn whose tools run says nothing until they are done; it is known by what it no longer waits for.
  State shown_state(const ShownTurn& turn) const {
    const bool tools_run = turn.state == State::waiting && turn.tools_left > 0 &&
                           std::all_of(turn.needs.begin(), turn.needs.end(),
                                       [&](std::size_t need) { return is_over(turns_[need].state); });
    return tools_run ? State::tool : turn.state;
  }

  ViewLine line_of(const ShownTurn& turn, int columns) const {
    const State state = shown_state(turn);
    std::string rate, reuse, tokens;
    if (turn.output_tokens > 0) {
      double per_s = turn.tokens_per_s;
      if (state == State::decoding) {
        const double seconds = std::chrono::duration<double>(Clock::now() - turn.first_token).count();
        per_s = seconds > 0.2 ? static_cast<double>(turn.output_tokens - 1) / seconds : 0;
      }
      tokens = fmt::format("{} tok", turn.output_tokens);
      if (per_s > 0) rate = fmt::format("{:.1f}/s", per_s);
    }
    if (state == State::prefill && turn.prefilled > 0) {
      reuse = fmt::format("{:.0f} %", 100 * turn.prefilled);
    } else if (turn.has_reuse && turn.ahead_rate > turn.reuse_rate) {
      reuse = fmt::format("ahead {:.0f} %", 100 * turn.ahead_rate);
    } else if (turn.has_reuse) {
      reuse = fmt::format("reuse {:.0f} %", 100 * turn.reuse_rate);
    }
    ViewLine line;
    line.add(Style::plain, "  " + padded(head(turn_name(turn.agent, turn.round), agent_width_), agent_width_) + "  ",
             columns);
    line.add(style_of(state), padded(name_of(state), 9), columns);
    line.add(Style::plain,
             columns < kNarrow
                 ? fmt::format("  {}  ", padded_left(state == State::prefill ? reuse : tokens, 8))
                 : fmt::format("  {}  {}  {}  ", padded_left(tokens, 8), padded_left(rate, 9), padded_left(reuse, 11)),
             columns);
    const std::string text = printable(turn.text, Lines::fold, !terminal_is_utf8());
    line.add(Style::dim, state == State::failed ? text : tail(text, columns - line.width), columns);
    return line;
  }

  /// If not all turns fit: first what goes on, then the latest that are over, then the next that wait.
  std::vector<std::size_t> shown_turns(std::size_t room) const {
    std::vector<std::size_t> order(turns_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (order.size() <= room) return order;
    const auto rank = [&](std::size_t i) {
      const State state = turns_[i].state;
      return is_over(state) ? 1 : state == State::waiting ? 2 : 0;
    };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return rank(a) != rank(b) ? rank(a) < rank(b) : rank(a) == 1 ? a > b : a < b;
    });
    order.resize(room);
    std::sort(order.begin(), order.end());
    return order;
  }

  int agent_width_ = 0;
  std::vector<ShownTurn> turns_;
};

class LiveView : public View {
 public:
  explicit LiveView(const Workflow& workflow)
      : name_(printable(workflow.name(), Lines::fold)), start_(Clock::now()), turns_(workflow) {}

  ~LiveView() override {
    LiveView::close();
    if (thread_.joinable()) thread_.join();
  }

  void on_event(const Event& event) override {
    const std::lock_guard lock(mutex_);
    std::visit([this](const auto& typed) { take(typed); }, event);
  }

  void close() override {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = true;
      std::string out = erase();
      out += above_;
      note(out + (shown_ ? "\x1b[?25h" : ""));
    }
    wake_.notify_all();
  }

 private:
  /// The models are open: until now their loading had the screen.
  void take(const RunStarted&) {
    if (closed_) return;
    start_ = Clock::now();
    thread_ = std::thread([this] { draw_until_closed(); });
  }
  void take(const Warning& event) { above_ += warning_line(event.message); }
  template <typename OfTurn>
  void take(const OfTurn& event) {
    turns_.take(event);
  }

  std::vector<ViewLine> compose(const TerminalSize& terminal) const {
    const int columns = terminal.columns - 1;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    ViewLine title;
    title.add(Style::bold, name_, columns);
    title.add(Style::plain, fmt::format("  {} of {} turns  {:.1f} s", turns_.over(), turns_.size(), seconds), columns);
    if (interrupted().stop_requested()) title.add(Style::yellow, "  stopping; Ctrl-C again ends at once", columns);
    std::vector<ViewLine> lines = {title};
    const auto room = static_cast<std::size_t>(std::max(terminal.rows - 3, 1));
    for (ViewLine& line : turns_.lines(room, columns)) lines.push_back(std::move(line));
    return lines;
  }

  /// The rows that the lines on the screen fill, should the window have become narrower.
  int rows_drawn() const {
    const int columns = terminal_size().columns;
    int rows = 0;
    for (const int width : drawn_) rows += std::max(1, (width + columns - 1) / columns);
    return rows;
  }

  /// Clears row by row: clearing down to the end of the screen makes some terminals keep the old rows in their history.
  std::string erase() {
    const int rows = rows_drawn();
    drawn_.clear();
    if (rows == 0) return {};
    std::string out = fmt::format("\r\x1b[{}A", rows);
    for (int i = 0; i < rows; ++i) out += "\x1b[2K\n";
    return out + fmt::format("\x1b[{}A", rows);
  }

  void draw() {
    const auto lines = compose(terminal_size());
    std::string out = shown_ ? "" : "\x1b[?25l";
    // Redrawn in place if nothing moved, so that nothing flickers.
    if (above_.empty() && lines.size() == drawn_.size() && rows_drawn() == static_cast<int>(drawn_.size())) {
      out += fmt::format("\r\x1b[{}A", drawn_.size());
    } else {
      out += erase();
    }
    shown_ = true;
    drawn_.clear();
    out += above_;
    above_.clear();
    for (const auto& line : lines) {
      out += line.text + "\x1b[K\n";
      drawn_.push_back(line.width);
    }
    note(out);
  }

  void draw_until_closed() {
    std::unique_lock lock(mutex_);
    while (!closed_) {
      draw();
      wake_.wait_for(lock, kFrame, [this] { return closed_; });
    }
  }

  std::string name_;
  Clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable wake_;
  ShownTurns turns_;
  std::string above_;       // lines that stay, shown above the view
  std::vector<int> drawn_;  // widths of the lines on the screen
  bool shown_ = false;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<View> make_live_view(const Workflow& workflow) { return std::make_unique<LiveView>(workflow); }

}  // namespace baton::cli
