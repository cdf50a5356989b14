// Places are what has a scale: an operand of a layer, or the result of one that propagates. Which
// of them share one is a union-find over places:
//   1. operand and result of a layer that propagates, as its rule says;
//   2. operands that are one value, with equal specifications;
//   3. an operand and the result of its producer, with equal specifications.
// Operands come before results, so that each step joins what is there already. The order of
// places is that of the program, and a group has the name of its first place: names stay when
// something else of the model changes.
#include "quant/annotate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "ir/text.h"
#include "quant/match.h"

namespace tandem::quant {
namespace {

using ir::Value;

class UnionFind {
 public:
  explicit UnionFind(size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }
  size_t root(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  /// The lower number is the root of both.
  void join(size_t a, size_t b) {
    const std::pair<size_t, size_t> roots = std::minmax(root(a), root(b));
    parent_[roots.second] = roots.first;
  }

 private:
  std::vector<size_t> parent_;
};

class Annotator {
 public:
  explicit Annotator(std::vector<Match> matches) : matches_(std::move(matches)) {}

  Annotation run(std::vector<std::string> notes) {
    for (size_t i = 0; i < matches_.size(); ++i) add_places(i);
    UnionFind sets(places_.size());
    share(sets);
    Annotation annotation;
    make_groups(sets, annotation);
    annotation.places = std::move(places_);
    annotation.notes = std::move(notes);
    for (Match& match : matches_) annotation.layers.push_back(std::move(match.layer));
    return annotation;
  }

 private:
  void add_places(size_t layer) {
    const Match& match = matches_[layer];
    for (const Match::Operand& operand : match.operands)
      add({layer, value_at(operand.use), operand.use}, *operand.spec, operand.param);
    if (match.rule->propagates)
      add({layer, match.layer.nodes.back()->results[0], {}}, *match.operands[0].spec, "output");
  }

  void add(Place place, const QSpec& spec, const std::string& what) {
    places_.push_back(place);
    specs_.push_back(spec);
    names_.push_back(fmt::format("{}.{}", matches_[place.layer].layer.name, what));
  }

  void share(UnionFind& sets) {
    std::map<size_t, size_t> first_of_layer;  // that propagates
    for (size_t i = 0; i < places_.size(); ++i)
      if (matches_[places_[i].layer].rule->propagates)
        sets.join(first_of_layer.emplace(places_[i].layer, i).first->second, i);
    share_values(sets, false);
    share_values(sets, true);
  }

  /// Places of one value: its readers', and with `outputs` its producer's.
  void share_values(UnionFind& sets, bool outputs) {
    std::multimap<uint32_t, size_t> of_value;
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].is_output() && !outputs) continue;
      const auto [begin, end] = of_value.equal_range(places_[i].value->id);
      for (auto it = begin; it != end; ++it)
        if (specs_[it->second] == specs_[i]) sets.join(it->second, i);
      of_value.emplace(places_[i].value->id, i);
    }
  }

  void make_groups(UnionFind& sets, Annotation& annotation) {
    std::map<size_t, size_t> number;  // of a root
    for (size_t i = 0; i < places_.size(); ++i) {
      const std::pair<std::map<size_t, size_t>::iterator, bool> entry =
          number.emplace(sets.root(i), annotation.groups.size());
      if (entry.second) annotation.groups.push_back({names_[i], specs_[i], {}});
      Group& group = annotation.groups[entry.first->second];
      if (std::ranges::find(group.values, places_[i].value) == group.values.end())
        group.values.push_back(places_[i].value);
      places_[i].group = entry.first->second;
    }
  }

  std::vector<Match> matches_;
  std::vector<Place> places_;
  std::vector<QSpec> specs_;        // by place
  std::vector<std::string> names_;  // by place
};

std::string describe(const QSpec& spec) {
  std::string text = fmt::format("{}[{}, {}]", name_of(spec.dtype), spec.quant_min, spec.quant_max);
  if (spec.symmetric) text += " symmetric";
  if (spec.per == Per::channel) text += fmt::format(" by channel of axis {}", spec.axis);
  if (spec.per == Per::group) text += fmt::format(" by groups of {}", spec.group_size);
  return text + (spec.dynamic ? " dynamic" : fmt::format(" {}", name_of(spec.observer)));
}

}  // namespace

Annotation annotate(const ir::Graph& graph, const Recipe& recipe, const IsKnown& is_known) {
  std::vector<std::string> notes;
  std::vector<Match> matches = find_layers(graph, recipe, is_known, notes);
  return Annotator(std::move(matches)).run(std::move(notes));
}

std::string to_string(const Annotation& annotation, const ir::Graph& graph) {
  const DenseMap<Value, std::string> names = ir::value_names(graph);
  std::string text;
  for (size_t i = 0; i < annotation.layers.size(); ++i) {
    const Layer& layer = annotation.layers[i];
    text += fmt::format("layer {} ({}): {}", layer.name, layer.rule,
                        names.at(layer.nodes.front()->results[0]));
    if (layer.nodes.size() > 1)
      text += fmt::format(" to {}", names.at(layer.nodes.back()->results[0]));
    for (const Place& place : annotation.places) {
      if (place.layer != i) continue;
      text += fmt::format("; {} %{} in {}", place.is_output() ? "result" : "operand",
                          names.at(place.value), annotation.groups[place.group].name);
    }
    text += "\n";
  }
  for (const Group& group : annotation.groups)
    text += fmt::format("group {}: {}, {} value{}\n", group.name, describe(group.spec),
                        group.values.size(), group.values.size() == 1 ? "" : "s");
  for (const std::string& note : annotation.notes) text += fmt::format("note: {}\n", note);
  return text;
}

}  // namespace tandem::quant
