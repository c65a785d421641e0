// Package place puts the core's decisions into kube-scheduler: [Energy] scores where marked pods run, [Hold] keeps bare
// pods from being tried before their time. It converts and obeys; every decision is made in package sched or by the
// [Gate]. A scheduler built with these plugins needs scheduler/parking in front of its queue, or held pods cost it time
// whenever anything happens in the cluster, and scheduler/fallback around its profiles, or the score plugins that
// [Energy] replaces score its pods too.
//
// Whatever goes wrong in here, be it missing or stale knowledge, annotations that make no sense or a panic, ends in
// what stock kube-scheduler would have done. Nothing waits, calls the network or writes to the API server.
//
// # A cycle
//
// PreFilter reads the pod, then narrows the cycle to the nodes of a batch plan (batch.go) or to a shortlist
// (shortlist.go). Filter refuses nodes by their power and efficiency. PreScore ranks the nodes by the strategy's cost
// (energy.go, rank.go), NormalizeScore hands the points over. Reserve notes the pod's watts and drafts the record of
// the decision, PostBind sends it. PostFilter ends a cycle that was narrowed in vain (retry.go).
//
// # Shortlists
//
// Purpose: a pod comes to the same node, that of least cost that passes all filters, at a fraction of the price of
// filtering and scoring as many nodes as kube-scheduler would. The nodes of least cost are found in what the node book
// (nodes.go) remembers of a sample of that size, and only these are filtered and scored.
//
// Invariants, and the tests that hold them:
//
//   - The node of least cost of the sample is on the list: TestShortlistsHaveTheBest, TestShortlistsAreOfTheSample.
//   - Only cycles in which our scores decide, of pods whose place depends on nothing but room, cost and the nodes' own
//     rules, are narrowed: TestCyclesThatAreNotNarrowed, TestWhatProfilesSay.
//   - What was seen of a node is believed for a tenth of a second, and never once its generation is another where it
//     is on the list: TestTrust, TestNodesChangeMeanwhile, TestNodesGo, TestTheViewChangesMeanwhile.
//   - A record of the decision names all nodes that there were to choose from: TestShortlistsAreRecorded.
//
// What fails how: where no node of the list passes the filters, the pod is tried again at once on all nodes, and no pod
// is evicted for it (TestAfterAShortlistInVain). So is a pod on which there is no opinion any more when the list is
// scored, because stock's scores choose among all nodes (TestNarrowedWithoutAnOpinion). After eight lists in vain in a
// row none are made for a second, then for two, up to a minute (TestManyShortlistsInVain).
package place
