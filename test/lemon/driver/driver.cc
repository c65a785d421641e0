// Solves minimum-cost flows with LEMON's network simplex, one after the other, from standard input to standard output.
//
// An instance is, in the byte order of the machine: int64 nodes, arcs and repeats; int64 supply of each node; of each arc
// int32 tail and int32 head; then int64 capacity, -1 for none, and int64 cost. Then for each repeat a byte is awaited, the
// instance is solved, and a line is printed: the status (optimal, infeasible or unbounded), the cost, and the seconds of CPU
// time that building LEMON's solver took and that running it took.

#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>
#include <vector>

using Graph = lemon::SmartDigraph;
using Simplex = lemon::NetworkSimplex<Graph, std::int64_t, std::int64_t>;

template <typename T>
bool readAll(std::vector<T>& values) {
  return std::fread(values.data(), sizeof(T), values.size(), stdin) == values.size();
}

double seconds(std::clock_t from, std::clock_t to) { return static_cast<double>(to - from) / CLOCKS_PER_SEC; }

const char* name(Simplex::ProblemType type) {
  switch (type) {
    case Simplex::OPTIMAL: return "optimal";
    case Simplex::INFEASIBLE: return "infeasible";
    default: return "unbounded";
  }
}

int main() {
  std::vector<std::int64_t> header(3);
  while (readAll(header)) {
    const auto nodes = header[0], arcs = header[1], repeats = header[2];
    std::vector<std::int64_t> supply(nodes), limit(arcs), price(arcs);
    std::vector<std::int32_t> ends(2 * arcs);
    if (!readAll(supply) || !readAll(ends) || !readAll(limit) || !readAll(price)) {
      std::fprintf(stderr, "an instance ends early\n");
      return 1;
    }
    Graph graph;
    graph.reserveNode(nodes);
    graph.reserveArc(arcs);
    for (std::int64_t i = 0; i < nodes; ++i) graph.addNode();
    Graph::ArcMap<std::int64_t> capacity(graph), cost(graph);
    Graph::NodeMap<std::int64_t> balance(graph);
    for (std::int64_t i = 0; i < nodes; ++i) balance[graph.nodeFromId(i)] = supply[i];
    for (std::int64_t i = 0; i < arcs; ++i) {
      const auto arc = graph.addArc(graph.nodeFromId(ends[2 * i]), graph.nodeFromId(ends[2 * i + 1]));
      capacity[arc] = limit[i] < 0 ? std::numeric_limits<std::int64_t>::max() : limit[i];
      cost[arc] = price[i];
    }
    for (std::int64_t i = 0; i < repeats; ++i) {
      if (std::getchar() == EOF) return 0;
      const auto begin = std::clock();
      Simplex simplex(graph);
      simplex.upperMap(capacity).costMap(cost).supplyMap(balance);
      const auto built = std::clock();
      const auto type = simplex.run();
      const auto done = std::clock();
      const long long total = type == Simplex::OPTIMAL ? simplex.totalCost<long long>() : 0;
      std::printf("%s %lld %.9f %.9f\n", name(type), total, seconds(begin, built), seconds(built, done));
      std::fflush(stdout);
    }
  }
}
