// SPDX-License-Identifier: Apache-2.0
// A team in a window (Qt 6): a question, each agent's text as it is written, the answer. The window's thread never
// waits for a model: callbacks of the run post to it.
//
//   desktop [MODEL [WORKFLOW]]        a folder, a .gguf file, a name or hf:ORG/NAME; a file, or the name of an
//   installed one
#include <baton/baton.h>

#include <QApplication>
#include <QGridLayout>
#include <QGroupBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QShortcut>
#include <QVBoxLayout>

#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>

constexpr auto kQuestion =
    "Noah pays for 2 books at 7 coins each with 75 coins. How many coins does he get back from the shop?";

/// One run at a time of a workflow whose first input is the question and whose first output is the answer.
class TeamWindow : public QWidget {
 public:
  TeamWindow(baton::Engine engine, baton::Workflow workflow)
      : engine_(std::move(engine)), workflow_(std::move(workflow)) {
    if (workflow_.inputs().empty() || workflow_.outputs().empty())
      throw baton::Error(workflow_.name() + ": expected a workflow with an input and an output");
    auto* top = new QHBoxLayout;
    top->addWidget(&question_, 1);
    top->addWidget(&run_button_);
    top->addWidget(&cancel_button_);
    auto* grid = new QGridLayout;
    for (const auto& agent : workflow_.agents()) {
      auto* box = new QGroupBox(QString::fromStdString(agent.role));
      auto* text = texts_[agent.id] = new QPlainTextEdit;
      text->setReadOnly(true);
      (new QVBoxLayout(box))->addWidget(text);
      const int place = static_cast<int>(texts_.size()) - 1;
      grid->addWidget(box, place / 2, place % 2);
    }
    auto* all = new QVBoxLayout(this);
    all->addLayout(top);
    all->addLayout(grid, 1);
    all->addWidget(&answer_);
    answer_.setWordWrap(true);
    answer_.setTextFormat(Qt::PlainText);  // a model wrote it
    answer_.setTextInteractionFlags(Qt::TextSelectableByMouse);
    QFont large = answer_.font();
    large.setPointSizeF(large.pointSizeF() * 1.3);
    answer_.setFont(large);
    connect(&run_button_, &QPushButton::clicked, this, [this] { start(); });
    connect(&question_, &QLineEdit::returnPressed, this, [this] { start(); });
    connect(&cancel_button_, &QPushButton::clicked, this, [this] { run_->cancel(); });
    connect(new QShortcut(QKeySequence("Ctrl+Q"), this), &QShortcut::activated, this, [this] { close(); });
    show_state("ready");
    resize(960, 720);
  }

 private:
  void start() {
    if (run_) return;
    for (const auto& [agent, text] : texts_) text->clear();
    answer_.clear();
    baton::RunOptions options;
    options.inputs[workflow_.inputs().front().name] = question_.text().toStdString();
    // On a thread of the library. What is posted after the window is gone is dropped: it owns the run.
    options.on_event = [this](const baton::Event& event) {
      if (const auto* token = std::get_if<baton::Token>(&event))
        QMetaObject::invokeMethod(
            this, [this, token = *token] { show_token(token); }, Qt::QueuedConnection);
    };
    options.on_end = [this] {
      QMetaObject::invokeMethod(
          this, [this] { finish(); }, Qt::QueuedConnection);
    };
    try {
      run_ = engine_.start(workflow_, options);
      show_state("running");
    } catch (const baton::Error& error) {
      show_answer(error.what());
    }
  }

  void show_token(const baton::Token& token) {
    QPlainTextEdit* text = texts_.at(token.agent);
    text->moveCursor(QTextCursor::End);
    text->insertPlainText(QString::fromStdString(token.text));
    text->ensureCursorVisible();
  }

  /// The run is over: get() returns at once.
  void finish() {
    std::string state = "failed";
    try {
      const baton::RunRecord record = run_->get();
      state = name_of(record.state);
      const bool ok = record.state == baton::RunState::ok;
      show_answer(ok ? record.outputs.at(workflow_.outputs().front()) : record.error);
    } catch (const baton::Error& error) {  // a model could not be opened
      show_answer(error.what());
    }
    run_.reset();
    show_state(state);
  }

  void show_answer(const std::string& text) { answer_.setText(QString::fromStdString(text)); }

  void show_state(const std::string& state) {
    run_button_.setEnabled(!run_);
    cancel_button_.setEnabled(run_.has_value());
    setWindowTitle(QString::fromStdString(workflow_.name() + ": " + state));
  }

  baton::Engine engine_;
  baton::Workflow workflow_;
  QLineEdit question_{kQuestion};
  QPushButton run_button_{"Run"}, cancel_button_{"Cancel"};
  std::map<std::string, QPlainTextEdit*> texts_;  // by agent
  QLabel answer_;
  std::optional<baton::Run> run_;  // the last member: it ends before what its callbacks use
};

int main(int argc, char** argv) {
  QApplication application(argc, argv);
  try {
    TeamWindow window(baton::Engine::open({.model = argc > 1 ? argv[1] : ""}),
                      baton::Workflow::load(argc > 2 ? argv[2] : "math_team"));
    window.show();
    return QApplication::exec();
  } catch (const baton::Error& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
