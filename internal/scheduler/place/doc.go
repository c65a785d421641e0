// Package place implements the plugins for kube-scheduler. [Energy] scores nodes for marked pods, and [Hold] delays
// the scheduling of bare pods. The plugins convert between Kubernetes and the core and apply its decisions, which
// are made in package sched or by the [Gate]. A scheduler with these plugins needs the queue of scheduler/parking,
// because held pods would otherwise slow down the handling of all events in the cluster. It also needs
// scheduler/fallback, because the score plugins that [Energy] replaces would otherwise score its pods, too.
//
// On any failure, such as missing or stale data, invalid annotations or a panic, the result is that of an
// unmodified kube-scheduler. The plugins do not block, use the network or write to the API server.
//
// # Scheduling cycle
//
// PreFilter reads the pod and narrows the cycle to the nodes of a batch plan (batch.go) or to a shortlist
// (shortlist.go). Filter rejects nodes by power and efficiency. PreScore ranks the nodes by the cost function of
// the strategy (energy.go, rank.go), and NormalizeScore returns the scores. Reserve reserves the power of the pod
// and drafts the record of the decision, which PostBind sends. PostFilter ends a narrowed cycle that found no node
// (retry.go).
//
// # Shortlists
//
// A shortlist reduces the cost of a cycle: the pod is placed on the same node, which is the cheapest one that
// passes all filters, but far fewer nodes are filtered and scored than in an ordinary cycle. The cheapest nodes are
// selected from a sample that is as large as that of kube-scheduler, by means of the node book (nodes.go).
//
// Invariants and their tests:
//
//   - The shortlist contains the cheapest node of the sample: TestShortlistsHaveTheBest, TestShortlistsAreOfTheSample.
//   - A cycle is narrowed only if the scores of this plugin are decisive, and if the placement of the pod depends only
//     on capacity, cost and the rules of the nodes: TestCyclesThatAreNotNarrowed, TestWhatProfilesSay.
//   - The cached state of a node is used for at most a tenth of a second, and not at all for a listed node if its
//     generation has changed: TestTrust, TestNodesChangeMeanwhile, TestNodesGo, TestTheViewChangesMeanwhile.
//   - The record of a decision contains all candidate nodes: TestShortlistsAreRecorded.
//
// If no node of the shortlist passes the filters, the pod is immediately retried on all nodes, and no pod is
// evicted for it (TestAfterAShortlistInVain). The same happens if the strategy no longer has an opinion when the
// shortlist is scored, because the default scores must choose among all nodes (TestNarrowedWithoutAnOpinion). After
// eight consecutive failed shortlists, narrowing is suspended for a second, and then for exponentially longer times
// of up to a minute (TestManyShortlistsInVain).
package place
