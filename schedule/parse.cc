// Reads the text form of kernel graphs. Problem: it is written by hand in tests and reports, so
// what is wrong must be said with its line. Approach: a line is a statement, its first word says
// which; statements add to the item or group in hand; kernels are read by loop/ and copied to the
// graph's symbols. What lines cannot see alone is verified at the end.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/line_cursor.h"
#include "ir/text.h"
#include "loop/stage.h"
#include "schedule/check_items.h"
#include "schedule/definition.h"
#include "schedule/text.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using Line = LineCursor;

template <class Kind>
std::optional<Kind> kind_from_name(std::string_view name, Kind last) {
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (name_of(static_cast<Kind>(i)) == name) return static_cast<Kind>(i);
  return std::nullopt;
}

/// What names and numbers in a line stand for.
class WordReader {
 protected:
  explicit WordReader(KernelGraph& graph) : graph_(graph) {
    const DenseMap<Value, std::string> names = ir::value_names(*graph.graph);
    for (const Value* value : graph.graph->inputs()) named_[names.at(value)] = value;
    for (const ir::Node* node = graph.graph->first(); node != nullptr; node = node->next)
      for (const Value* value : node->results) named_[names.at(value)] = value;
  }

  const Value* value(Line& line) const {
    line.expect("%");
    const std::string name(line.word(".$:"));  // %w:momentum
    const auto found = named_.find(name);
    if (found == named_.end()) line.fail("no value %" + name + " before");
    return found->second;
  }

  std::vector<const Value*> values(Line& line) const {
    std::vector<const Value*> found{value(line)};
    while (line.eat(",")) found.push_back(value(line));
    return found;
  }

  Item& item(Line& line) const {
    const int64_t number = line.integer();
    if (number < 0 || number >= static_cast<int64_t>(graph_.items.size()))
      line.fail("no such item before");
    return *graph_.items[static_cast<size_t>(number)];
  }

  static std::vector<int64_t> numbers(Line& line) {
    std::vector<int64_t> found{line.integer()};
    while (line.eat(",")) found.push_back(line.integer());
    return found;
  }

  ir::Sizes sizes(Line& line) { return expressions(line, line.bracketed()); }

  ir::Sizes expressions(const Line& line, std::string_view text) {
    ir::Sizes found;
    for (std::string_view part : parts_of(text)) found.push_back(expression(line, part));
    return found;
  }

  /// Over symbols of the graph; scalars and numbers of one call are symbols as well.
  sym::Expr expression(const Line& line, std::string_view text) {
    sym::Pool& pool = graph_.graph->pool();
    std::string error;
    const std::optional<sym::Expr> found = sym::parse(pool, text, &error);
    if (!found) line.fail(error);
    for (sym::Expr symbol : sym::free_symbols(*found))
      graph_.computations.know_argument(symbol, *graph_.graph);
    return *found;
  }

  Slot slot(Line& line, Item& of) {
    Slot made;
    if (!line.eat("-")) {
      made.value = value(line);
      if (made.value->node != of.node) line.fail("another node makes it");
      graph_.homes[made.value] = {&of, static_cast<uint32_t>(of.slots.size())};
    }
    const std::optional<DType> dtype = dtype_from_name(line.word());
    if (!dtype) line.fail("expected a dtype before");
    made.dtype = *dtype;
    made.sizes = sizes(line);
    made.strides = line.eat("strides") ? sizes(line) : ir::contiguous_strides(made.sizes);
    if (made.strides.size() != made.sizes.size()) line.fail("a stride for each size");
    made.is_stored = line.eat("stored");
    if (line.eat("in_place_of")) made.in_place_of = value(line);
    return made;
  }

  KernelGraph& graph_;

 private:
  std::unordered_map<std::string, const Value*> named_;
};

class Parser : private WordReader {
 public:
  explicit Parser(KernelGraph& graph) : WordReader(graph) {}

  void run(std::string_view text) {
    for (int number = 1; !text.empty(); ++number) {
      const size_t end = std::min(text.find('\n'), text.size());
      if (text.starts_with("kernel ")) {
        number += take_kernel(text, number) - 1;
        continue;
      }
      Line line(without_comment(text.substr(0, end)), number, "kernels");
      if (!line.done()) statement(line);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!ended_) throw UserError("[kernels] the text ends before its `}`");
  }

 private:
  void statement(Line& line) {
    if (ended_) line.fail("text after the kernel graph");
    if (!begun_) {
      header(line);
    } else if (line.eat("item")) {
      begin_item(line);
    } else if (line.eat("group")) {
      begin_group(line);
    } else if (line.eat("leaves")) {
      const Value* value = this->value(line);
      line.expect("as");
      graph_.leaves_as[value] = this->value(line);
    } else if (line.eat("order")) {
      order(line);
    } else if (line.eat("}")) {
      ended_ = true;
    } else if (group_ != nullptr) {
      group_line(line);
    } else if (item_ != nullptr) {
      item_line(line);
    } else {
      line.fail("expected item, group, leaves, order or `}`");
    }
    line.expect_end();
  }

  void header(Line& line) {
    line.expect("kernels");
    line.expect("@");
    const std::string& name = graph_.graph->name();
    if (line.until("{").substr(0, name.size()) != name) line.fail("they are not of @" + name);
    line.expect("{");
    begun_ = true;
  }

  // --- items

  void begin_item(Line& line) {
    if (line.integer() != static_cast<int64_t>(graph_.items.size())) line.fail("items count up");
    graph_.items.push_back(std::make_unique<Item>());
    item_ = graph_.items.back().get();
    group_ = nullptr;
    has_kernel_ = false;
    sizes_.clear();
    values_.clear();
    item_->id = static_cast<uint32_t>(graph_.items.size()) - 1;
    const std::optional<Item::Kind> kind = kind_from_name(line.word(), Item::Kind::library);
    if (!kind) line.fail("expected map, reduce, scan, scatter or library before");
    item_->kind = *kind;
    line.expect("of");
    const Value* of = value(line);
    if (of->node == nullptr) line.fail("nothing makes an input");
    item_->node = of->node;
    item_->result = of->index;
    item_->reason = line.quoted();
  }

  void item_line(Line& line) {
    Computation& of = item_->computation;
    if (line.eat("slot")) {
      item_->slots.push_back(slot(line, *item_));
    } else if (line.eat("route")) {
      const int64_t route = line.integer();
      if (route < 0 || route > static_cast<int64_t>(ops::RouteKind::read_scalar))
        line.fail("no such route");
      item_->route = static_cast<ops::RouteKind>(route);
    } else if (line.eat("combines")) {
      item_->partial_of = &item(line);
    } else if (line.eat("partial_rows")) {
      item_->partial_rows = expression(line, line.rest());
    } else if (line.eat("channels_last")) {
      item_->channels_last = true;
    } else if (line.eat("combiner")) {
      const std::optional<loop::Combiner> combiner = loop::combiner_from_name(line.word());
      if (!combiner) line.fail("expected a combiner before");
      of.combiner = *combiner;
    } else if (line.eat("reduces")) {
      of.reduce_sizes = sizes(line);
    } else if (line.eat("of")) {
      of.full_sizes = sizes(line);
    } else if (line.eat("dims")) {
      of.reduced_dims = numbers(line);
    } else if (line.eat("scatters")) {
      of.scatter_dim = line.integer();
      of.accumulate = line.eat("adding");
    } else if (line.eat("values")) {
      values_ = values(line);
    } else if (line.eat("sizes")) {
      sizes_ = expressions(line, line.rest());
    } else {
      line.fail("expected something of an item");
    }
  }

  // --- groups

  void begin_group(Line& line) {
    if (line.integer() != static_cast<int64_t>(graph_.groups.size())) line.fail("groups count up");
    group_ = &graph_.groups.emplace_back();
    has_kernel_ = false;
    sizes_.clear();
    const std::optional<Group::Kind> kind = kind_from_name(line.word(), Group::Kind::chain);
    if (!kind) line.fail("expected loops, alone, library or chain before");
    group_->kind = *kind;
    if (line.eat("over")) group_->space.outer = sizes(line);
    group_->space.reduces = line.eat("x");
    if (group_->space.reduces) group_->space.inner = sizes(line);
    group_->space.whole = !line.eat("apart");
  }

  void group_line(Line& line) {
    if (line.eat("member")) {
      member(line);
    } else if (line.eat("reads")) {
      for (const Value* value : values(line)) group_->needs.reads.insert(value);
    } else if (line.eat("after")) {
      for (int64_t number : numbers(line)) group_->needs.groups.insert(in_range(line, number));
    } else if (line.eat("can_fail")) {
      group_->needs.can_fail = true;
    } else if (line.eat("footprint")) {
      group_->footprint = &item(line);
      line.expect("reads");
      group_->footprint_reads = static_cast<int>(line.integer());
    } else if (line.eat("follows")) {
      const uint32_t call = in_range(line, line.integer());
      line.expect("lines");
      group_->follows = Followed{call, line.integer()};
    } else if (line.eat("holds")) {
      holds(line);
    } else if (line.eat("sizes")) {
      sizes_ = expressions(line, line.rest());
    } else {
      line.fail("expected something of a group");
    }
  }

  void member(Line& line) {
    Member made;
    made.item = &item(line);
    const std::optional<Extent> extent = kind_from_name(line.word(), Extent::columns);
    if (!extent) line.fail("expected full, row or columns before");
    made.extent = *extent;
    line.expect("stage");
    const int64_t stage = line.integer();
    if (stage < 0 || stage > static_cast<int64_t>(group_->members.size()))
      line.fail("a member is in a stage of those before it, or in the next one,");
    made.stage = static_cast<int>(stage);
    group_->members.push_back(made);
  }

  void holds(Line& line) {
    do {
      const bool is_value = line.looks_at("%");
      group_->buffer_values.push_back(is_value ? value(line) : nullptr);
      group_->buffer_homes.emplace_back();
      if (is_value || line.eat("-")) continue;
      Home& home = group_->buffer_homes.back();
      home.item = &item(line);
      line.expect(".");
      home.slot = static_cast<uint32_t>(line.integer());
      if (home.slot >= home.item->slots.size()) line.fail("the item has fewer slots");
    } while (line.eat(","));
  }

  void order(Line& line) {
    do {
      std::vector<size_t>& together = graph_.order.emplace_back();
      do {
        together.push_back(in_range(line, line.integer()));
      } while (line.eat(","));
    } while (line.eat("|"));
  }

  uint32_t in_range(Line& line, int64_t number) const {
    if (number < 0 || number >= static_cast<int64_t>(graph_.groups.size()))
      line.fail("no such group before");
    return static_cast<uint32_t>(number);
  }

  // --- kernels

  /// Lines taken.
  int take_kernel(std::string_view& text, int number) {
    const size_t end = text.find("\n}");
    Line line(text.substr(0, text.find('\n')), number, "kernels");
    if (end == std::string_view::npos) line.fail("the kernel has no end");
    if (group_ == nullptr && item_ == nullptr) line.fail("a kernel of nothing");
    if (std::exchange(has_kernel_, true)) line.fail("a second kernel");
    const std::string_view own = text.substr(0, end + 2);
    loop::Kernel kernel = loop::parse_kernel(own, number);
    if (kernel.sizes.size() != sizes_.size()) line.fail("a size for each of the kernel's");
    group_ != nullptr ? give_group(kernel) : give_item(std::move(kernel), line);
    text.remove_prefix(std::min(end + 3, text.size()));
    return static_cast<int>(std::ranges::count(own, '\n')) + 1;
  }

  void give_group(const loop::Kernel& kernel) {
    const auto pool = std::make_shared<loop::ScalarPool>(graph_.graph->pool());
    group_->kernel = loop::copied(kernel, pool, sizes_);
    group_->kernel.sizes.clear();  // arguments come with the launch
  }

  void give_item(loop::Kernel kernel, const Line& line) {
    for (const loop::Stage& stage : kernel.stages)
      for (loop::Val root : loop::roots_of(stage))
        for (loop::Val part : loop::reachable(std::span(&root, 1))) check_part(*part, kernel, line);
    const std::vector<std::string> problems = problems_of_definition(kernel, *item_);
    if (!problems.empty()) line.fail(problems[0]);
    if (!read_definition(graph_, *item_, {std::move(kernel), values_, sizes_}))
      line.fail("these loops define no such item");
  }

  void check_part(const loop::Scalar& part, const loop::Kernel& kernel, const Line& line) const {
    const size_t slot = static_cast<size_t>(part.slot);
    if (part.opcode == loop::Opcode::load) line.fail("a definition reads elements");
    if (part.opcode == loop::Opcode::element && slot >= values_.size()) line.fail("no such value");
    if (part.opcode == loop::Opcode::check && slot >= kernel.errors.size())
      line.fail("no such error");
  }

  Item* item_ = nullptr;
  Group* group_ = nullptr;
  std::vector<sym::Expr> sizes_;  // of the kernel that comes next
  std::vector<const Value*> values_;
  bool has_kernel_ = false;
  bool begun_ = false;
  bool ended_ = false;
};

std::string name_of(const Problem& problem) {
  if (problem.of == Problem::Of::graph) return "kernels";
  return fmt::format("{} {}", problem.of == Problem::Of::item ? "item" : "group", problem.number);
}

/// Of the first line that begins with these words.
int line_of(const std::string& words, std::string_view text) {
  const size_t at = text.find("\n" + words + " ");
  if (at == std::string_view::npos) return 1;
  return 2 + static_cast<int>(std::ranges::count(text.substr(0, at), '\n'));
}

}  // namespace

void throw_if_any(const Problems& problems, std::string_view text) {
  if (problems.empty()) return;
  std::vector<Diagnostic> found;
  for (const Problem& problem : problems) {
    const std::string name = name_of(problem);
    found.push_back(
        {fmt::format("[kernels] line {}: {}: {}", line_of(name, text), name, problem.text), ""});
  }
  throw UserError(std::move(found));
}

void parse_kernel_graph(KernelGraph& graph, std::string_view text) {
  Parser(graph).run(text);
  throw_if_any(problems_of_items(graph), text);
  throw_if_any(verify(graph), text);
}

}  // namespace tandem::schedule
