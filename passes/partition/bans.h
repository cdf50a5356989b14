// What a partition may not compute again in backward.
#pragma once

#include <string>
#include <vector>

#include "passes/partition/partition.h"
#include "passes/passes.h"

namespace tandem::passes {

/// Why a node is not computed again.
struct Ban {
  enum class Kind : uint8_t {
    none,
    never,      // it must not be, whatever the memory it takes
    preferred,  // a policy would rather have it saved
    dear,       // it takes time
    placed,     // for where its readers stand it would take a kernel more
  };
  Kind kind = Kind::none;
  const char* reason = nullptr;

  bool is_ban() const { return kind != Kind::none; }
};

/// By node of the forward half.
DenseMap<ir::Node, Ban> bans_of(const ir::Graph& graph, const Halves& halves,
                                const Tuning::Chains& limits, const CutKnobs& knobs = {});
DenseMap<ir::Node, Ban> bans_of(const ir::Graph& graph, const Halves& halves,
                                const DenseMap<ir::Node, char>& wide, const CutKnobs& knobs = {});
/// In words, of a saved value of a node with that ban or none.
const char* why_saved(const Ban& ban);

/// By whom the rest is known; `otherwise` is the default's choice.
ir::Values min_cut(ir::Graph& graph, const Halves& halves, const DenseMap<ir::Node, Ban>& bans,
                   const KeptBytes& kept, const ir::Values& otherwise,
                   std::vector<std::string>& notes, const CutKnobs& knobs = {});

/// Runs inside the kernel of what reads it, so that computing it again moves no memory of its own.
bool is_light(const ir::Node& node);
/// A reduction runs in one kernel with what it reads; a product reads memory.
bool fuses(const ir::Value& value, const ir::Node& reader);

}  // namespace tandem::passes
