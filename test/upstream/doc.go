// Command upstream runs Kubernetes' own integration tests of the scheduler twice, as they are and with our plugins in
// every scheduler that they build, and fails if ours fails or leaves out what stock passes.
//
// Those tests build their schedulers themselves, mostly with default plugins, so ours come in from below: two
// functions of Kubernetes, the one that lists the plugins in the tree and the one that merges a profile with the
// defaults, are renamed while it is compiled, and two of testdata stand in for them, which add ours to what the
// renamed ones return. Not a line of Kubernetes is kept here, and its tests are compiled as they are.
package main
