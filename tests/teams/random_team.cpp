// SPDX-License-Identifier: Apache-2.0
#include "tests/teams/random_team.h"

#include <algorithm>
#include <set>

#include "tests/teams/draw.h"
#include "tests/teams/team_texts.h"
#include "tests/teams/yaml_writer.h"

namespace baton::test {
namespace {

class TeamMaker {
 public:
  TeamMaker(std::uint64_t seed, const TeamLimits& limits) : draw_(mixed_bits(seed)), limits_(limits) {
    team_.seed = seed;
    team_.run_seed = draw_.bits() >> 1;
  }

  RandomTeam make() {
    team_.topology = draw_.of({"single", "chain", "parallel", "star", "layered", "fully_connected", "debate", "graph",
                               "graph", "graph"});  // a graph has the most forms
    rounds_ = draw_.chance(0.5) ? 1 : draw_.between(1, limits_.rounds);
    name_members();
    opening_ = draw_.chance(0.3) ? document(draw_) : fixed_text(draw_);

    Yaml file;
    file["version"] = 1;
    file["name"] = "random-" + std::to_string(team_.seed);
    file["inputs"] = inputs();
    file["models"] = {{"main", "any"}};
    file["defaults"] = {{"max_tokens", draw_.between(4, limits_.max_tokens)}};
    if (draw_.chance(0.2)) file["defaults"]["seed"] = draw_.between(0, 1000);
    const Yaml flow = workflow();  // says who sees whom
    for (Member& member : members_) file["agents"][member.id] = agent(member);
    file["workflow"] = flow;
    file["relay"] = {{"method", "full"}, {"min_tokens", draw_.between(1, 32)}};
    if (draw_.chance(0.15)) file["relay"]["prefix"] = false;
    file["outputs"] = outputs();
    team_.yaml = written(file);
    return std::move(team_);
  }

 private:
  struct Member {
    std::string id;
    std::set<std::size_t> sees;  // of this round
    bool tools = false;
    bool decides = false;
    Yaml output = nullptr;

    /// Its answer, and the part of it that is a number: empty where there is none.
    std::string answer() const { return output.is_null() ? "" : "agent_" + id + "_answer"; }
    std::string number() const {
      if (output.contains("choose")) return "agent_" + id + "_probabilities." + output["choose"][0].get<std::string>();
      const bool has = output.contains("schema") && output["schema"].contains("properties");
      return has ? answer() + ".n" : "";
    }
  };

  void name_members() {
    std::vector<std::string> ids{"analyst", "critic", "judge_current", "scout", "agent_x", "y_history_1", "b2"};
    draw_.shuffle(ids);
    const int count = team_.topology == "single" ? 1 : draw_.between(2, limits_.agents);
    decision_ = draw_.chance(0.3);
    for (int i = 0; i < count + (decision_ ? 1 : 0); ++i) {
      members_.push_back({ids[static_cast<std::size_t>(i)], {}, draw_.chance(0.25), i == count});
      if (draw_.chance(0.3)) members_.back().output = drawn_output();
    }
    count_ = static_cast<std::size_t>(count);
  }

  Yaml inputs() {
    names_ = {"question"};
    Yaml out;
    out["question"] = {{"type", "string"}};
    team_.inputs["question"] = input_text(draw_);
    if (draw_.chance(0.5)) {
      names_.push_back("hint");
      out["hint"] = {{"default", input_text(draw_)}};
      if (draw_.chance(0.5)) team_.inputs["hint"] = input_text(draw_);
    }
    if (draw_.chance(0.3)) {
      names_.push_back("notes");
      out["notes"] = {{"required", false}};
      if (draw_.chance(0.5)) team_.inputs["notes"] = input_text(draw_);
    }
    return out;
  }

  Yaml ids(std::size_t begin, std::size_t end) const {
    Yaml out = Yaml::array();
    for (std::size_t i = begin; i < end; ++i) out.push_back(members_[i].id);
    return out;
  }

  /// The section, and what each member sees in a round.
  Yaml workflow() {
    Yaml out{{"topology", team_.topology}};
    const auto sees_before = [&](std::size_t viewer, std::size_t end) {
      for (std::size_t i = 0; i < end; ++i) members_[viewer].sees.insert(i);
    };
    if (team_.topology == "chain" || team_.topology == "fully_connected") {
      for (std::size_t i = 0; i < count_; ++i) sees_before(i, i);
    } else if (team_.topology == "star") {
      out["center"] = members_[count_ - 1].id;
      sees_before(count_ - 1, count_ - 1);
    } else if (team_.topology == "layered") {
      for (std::size_t begin = 0, end = 0; begin < count_; begin = end) {
        end = begin + static_cast<std::size_t>(draw_.between(1, static_cast<int>(count_ - begin)));
        out["layers"].push_back(ids(begin, end));
        for (std::size_t i = begin; i < end; ++i) sees_before(i, begin);
      }
    } else if (team_.topology == "graph") {
      out["steps"] = steps();
    }
    if (rounds_ > 1) {
      out["rounds"] = rounds_;
      if (draw_.chance(0.3)) out["until"] = condition(static_cast<std::size_t>(draw_.between(0, last_member())));
    }
    if (decision_) {
      out["then"] = members_.back().id;
      sees_before(count_, count_);
    }
    if (draw_.chance(0.2)) out["max_parallel"] = draw_.between(0, 2);
    return out;
  }
  int last_member() const { return static_cast<int>(count_) - 1; }

  Yaml condition(std::size_t member) {
    if (draw_.chance(0.5)) return expression(members_[member]);
    return {{"agent", members_[member].id}, {draw_.of({"matches", "not_matches"}), pattern(draw_)}};
  }

  /// No text and no answer makes its evaluation fail.
  std::string expression(const Member& member) {
    const std::string output = "agent_" + member.id + "_current";
    std::vector<std::string> parts{"'a' in " + output, output + " | length > 20", "round < 3 or question == ''",
                                   "not " + output + ".startswith('b')"};
    if (!member.answer().empty()) {
      parts.push_back(member.answer() + " is defined");
      parts.push_back(member.answer() + " in ['yes', 'mine']");
    }
    if (!member.number().empty())
      parts.push_back(member.answer() + " is defined and " + member.number() + " is defined and " + member.number() +
                      (member.output.contains("choose") ? " > 0.3" : " > 3"));
    const std::string first = draw_.of(parts);
    return draw_.chance(0.5) ? first : "(" + first + ") " + draw_.of({"and", "or"}) + " (" + draw_.of(parts) + ")";
  }

  /// Each member once, after some of those before it; some a second time.
  Yaml steps() {
    Yaml out = Yaml::array();
    std::set<std::size_t> infers;
    for (std::size_t i = 0; i < count_; ++i) {
      Yaml needs = Yaml::array();
      for (std::size_t j = 0; j < i; ++j) {
        if (!draw_.chance(0.6)) continue;
        needs.push_back(members_[j].id);
        members_[i].sees.insert(j);
        // What a step is known to wait for only by its prompt, others do not count on.
        if (!infers.count(j)) members_[i].sees.insert(members_[j].sees.begin(), members_[j].sees.end());
      }
      if (draw_.chance(0.3)) infers.insert(i);
      out.push_back(step(members_[i].id, members_[i].id, needs, members_[i].sees, infers.count(i) != 0));
    }
    for (std::size_t i = 0; i < count_; ++i) {
      if (!draw_.chance(0.2)) continue;
      const auto other = static_cast<std::size_t>(draw_.between(0, last_member()));
      const Yaml needs = other == i ? ids(i, i + 1) : Yaml{members_[i].id, members_[other].id};
      out.push_back(step("again_" + members_[i].id, members_[i].id, needs, {i, other}, false));
    }
    return out;
  }

  Yaml step(const std::string& id, const std::string& agent, const Yaml& needs, const std::set<std::size_t>& sees,
            bool infers) {
    Yaml out{{"agent", agent}};
    if (id != agent) out["id"] = id;
    // Without the key, a step waits for what its prompt and its condition name.
    if (!infers) out["needs"] = needs;
    if (!sees.empty() && draw_.chance(0.35)) {
      const std::vector<std::size_t> seen(sees.begin(), sees.end());
      out["when"] = condition(draw_.of(seen));
    }
    if (draw_.chance(0.15)) set_failures(out);
    return out;
  }

  void set_failures(Yaml& out) {
    out["retry"] = draw_.of({1, 2, 3});
    if (draw_.chance(0.5)) {
      out["on_error"] = "skip";
    } else {
      out["on_error"] = "fallback";
      out["fallback"] = draw_.of({"", "no answer", "the fallback, in place of an answer"});
    }
  }

  Yaml agent(const Member& member) {
    Yaml out;
    if (draw_.chance(0.4)) out["role"] = role(draw_);
    out["prompt"] = prompts_.emplace_back(draw_.chance(0.3) ? earlier_prompt(member) : prompt(member));
    if (member.tools) out["tools"] = tools(member);
    if (draw_.chance(0.5)) out["max_tokens"] = draw_.between(draw_.chance(0.1) ? 1 : 4, limits_.max_tokens);
    if (draw_.chance(0.5)) set_sampling(out);
    if (draw_.chance(0.4)) out["stop"] = stop_strings(draw_);
    if (!member.output.is_null()) {
      out["output"] = member.output;
      if (member.output.value("enforce", true) && !member.output.contains("pattern")) out.erase("stop");
      if (draw_.chance(0.7)) set_failures(out);
      if (out.value("retry", 1) > 1 && draw_.chance(0.5))
        out["retry"] = {{"attempts", out["retry"]}, {"feedback", "Not {{ output }}, since {{ error }}."}};
    }
    const bool words = member.output.is_null() || member.output.contains("pattern");
    const bool free = !words && !member.output.value("enforce", true);
    if (!member.output.contains("choose") && !free && draw_.chance(words ? 0.1 : 0.7)) set_calls(out);
    if (!out.contains("on_error")) out["on_error"] = "skip";  // of an error, a run would end at a random moment
    if (draw_.chance(0.2)) out["exact"] = true;
    if (draw_.chance(0.3)) out["remember"] = draw_.of({0, 1, 1, 2});
    if (draw_.chance(0.1)) out["timeout"] = "10m";
    if (!member.tools || member.output.contains("choose") || draw_.chance(0.7)) {
      team_.agents.push_back(member.id);
      return out;
    }
    for (const char* key : {"prompt", "max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
                            "seed", "stop", "exact", "calls", "remember"})
      out.erase(key);
    if (out["tools"].back().contains("call")) out["tools"].erase(out["tools"].size() - 1);
    if (out.contains("retry") && out["retry"].is_object()) out["retry"] = out["retry"]["attempts"];
    return out;
  }

  /// An enforced output leads to calls: `<` and `{` are as likely as its own beginnings.
  void set_calls(Yaml& out) {
    if (!out.contains("tools")) out["tools"] = Yaml::array();
    out["tools"].push_back({{"call", "look"}});
    out.erase("stop");
    out["calls"] = {{"max", draw_.between(1, 4)}};
    out["max_tokens"] = 100;  // a call takes 70 letters
    if (draw_.chance(0.2)) out["calls"]["direct"] = true;
    if (draw_.chance(0.3)) out["calls"]["repeat"] = true;
  }

  /// Short ones, so that some come to an end within max_tokens. No letter is an EOS of the random model.
  Yaml drawn_output() {
    Yaml output;
    switch (draw_.between(0, 9)) {
      case 0:
        output["enum"] = {"yes", "mine", "a critic"};
        break;
      case 1:
        output["regex"] = "[a-g]{1,6}( \\d{1,3}){0,2}";
        break;
      case 2:
        output["grammar"] = "root ::= item (\", \" item){0,3}\nitem ::= [a-m]{1,3} | \"(\" root \")\"\n";
        break;
      case 3:
        output["schema"] = {{"properties", {{"n", {{"type", "integer"}}}, {"b", {{"type", "boolean"}}}}}};
        break;
      case 4:
        output["schema"] = {{"type", draw_.of({"object", "number", "string"})}};
        break;
      case 5:
        output["choose"] = {"yes", "yes and no", "a"};
        return output;
      default:
        output["pattern"] = "(" + pattern(draw_) + ")";
        return output;
    }
    if (draw_.chance(0.25)) output["enforce"] = false;
    return output;
  }

  void set_sampling(Yaml& out) {
    out["temperature"] = draw_.of({0.5, 0.8, 1.0, 1.3});
    if (draw_.chance(0.3)) out["top_k"] = draw_.between(2, 50);
    if (draw_.chance(0.3)) out["top_p"] = draw_.of({0.5, 0.9});
    if (draw_.chance(0.2)) out["min_p"] = 0.05;
    if (draw_.chance(0.3)) out["repetition_penalty"] = draw_.of({1.1, 1.5});
    if (draw_.chance(0.2)) out["seed"] = draw_.between(0, 1000);
  }

  Yaml tools(const Member& member) {
    Yaml out = Yaml::array();
    for (int i = draw_.between(1, 2); i > 0; --i) {
      std::vector<std::string> texts = names_;
      for (const std::size_t seen : member.sees) texts.push_back("agent_" + members_[seen].id + "_current");
      if (rounds_ > 1) texts.push_back("agent_" + members_[0].id + "_history_1");
      out.push_back(
          {{"measure", {{"from", draw_.of(texts)}, {"kind", draw_.of({"length", "echo", "nothing", "odd"})}}}});
    }
    return out;
  }

  /// The names of the placeholders of a prompt, in the order in which they stand there.
  std::vector<std::string> placeholders(const Member& member) {
    std::vector<std::string> out;
    const auto add = [&](const std::string& name, double probability) {
      if (draw_.chance(probability)) out.push_back(name);
    };
    for (const std::size_t seen : member.sees) {
      add("agent_" + members_[seen].id + "_current", 0.85);
      if (members_[seen].tools) add("condition_" + members_[seen].id + "_current", 0.5);
      if (!members_[seen].answer().empty()) add(members_[seen].answer(), 0.5);
      if (!members_[seen].number().empty()) add(members_[seen].number(), 0.5);
    }
    if (member.tools) add("condition_" + member.id + "_current", 0.8);
    for (int back = 1; back < rounds_; ++back) {
      for (std::size_t i = 0; i < count_; ++i) {
        add("agent_" + members_[i].id + "_history_" + std::to_string(back), 0.3);
        if (members_[i].tools) add("condition_" + members_[i].id + "_history_" + std::to_string(back), 0.2);
      }
    }
    draw_.shuffle(out);
    for (const std::string& name : names_) {
      if (draw_.chance(0.7)) out.insert(draw_.chance(0.7) ? out.begin() : out.end(), name);
    }
    if (!out.empty() && draw_.chance(0.25)) out.push_back(draw_.of(out));
    return out;
  }

  /// The prompt of the last agent before this one that names nothing which this one does not see, if there is one.
  Yaml earlier_prompt(const Member& member) {
    for (std::size_t i = prompts_.size(); i-- > 0;) {
      const Member& other = members_[i];
      if (!other.tools && std::ranges::includes(member.sees, other.sees)) return prompts_[i];
    }
    return prompt(member);
  }

  Yaml prompt(const Member& member) {
    Yaml items = Yaml::array();
    for (const std::string& name : placeholders(member)) {
      std::string text = draw_.chance(0.8) ? fixed_text(draw_) : "";
      text += draw_.of({"{{ ", "{{"}) + name + draw_.of({" }}", "}}"});
      if (draw_.chance(0.3)) text += fixed_text(draw_);
      items.push_back(text);
    }
    const bool loops = draw_.chance(0.3);
    if (loops) {
      const Yaml loop{{"for", draw_.of({"peers", "previous"})}, {"text", loop_text(draw_)}};
      items.insert(items.begin() + draw_.between(0, static_cast<int>(items.size())), loop);
    }
    if (draw_.chance(0.7)) items.push_back(fixed_text(draw_));
    if (items.empty()) items.push_back("Say something.");
    const bool listed = loops || draw_.chance(0.4);
    const Yaml user = listed ? items : Yaml(joined(items));
    if (!listed && draw_.chance(0.2)) return user;

    Yaml out;
    const std::string system = draw_.chance(0.6) ? opening_ : fixed_text(draw_);
    if (draw_.chance(0.15)) {
      out["messages"] = {{{"role", "system"}, {"content", system}},
                         {{"role", "user"}, {"content", "{{ question }}\nGo on."}},
                         {{"role", "assistant"}, {"content", fixed_text(draw_)}},
                         {{"role", "user"}, {"content", user}}};
    } else {
      if (draw_.chance(0.8)) out["system"] = system + (draw_.chance(0.2) ? "{{ question }}" : "");
      out["user"] = user;
    }
    if (listed && draw_.chance(0.4)) out["order"] = "free";
    return out;
  }

  static std::string joined(const Yaml& items) {
    std::string text;
    for (const Yaml& item : items) text += item.get<std::string>();
    return text;
  }

  Yaml outputs() {
    Yaml out;
    out["answer"] = "{{ agent_" + members_.back().id + "_current }}";
    if (const std::string part = members_[0].answer(); !part.empty()) out["found"] = "{{ " + part + " }}";
    if (draw_.chance(0.3)) out["all"] = "{{ question }}: {{ agent_" + members_[0].id + "_current }}";
    return out;
  }

  Draw draw_;
  TeamLimits limits_;
  RandomTeam team_;
  int rounds_ = 1;
  bool decision_ = false;
  std::vector<Member> members_;  // the decision agent last
  std::size_t count_ = 0;        // of those that take part in the rounds
  std::vector<std::string> names_;
  std::string opening_;  // that several prompts share
  std::vector<Yaml> prompts_;
};

}  // namespace

RandomTeam random_team(std::uint64_t seed, const TeamLimits& limits) { return TeamMaker(seed, limits).make(); }

}  // namespace baton::test
