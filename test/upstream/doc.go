// Command upstream runs the scheduler integration tests of Kubernetes twice: unmodified, and with the KubEnergy
// plugins in every scheduler that they create. It fails if a test that passes without the plugins fails or is
// omitted with them.
//
// The tests create their schedulers themselves, usually with the default plugins. Therefore, two functions of
// Kubernetes are renamed when it is compiled: the one that returns the in-tree registry and the one that merges a
// profile with the defaults. Two functions in testdata replace them, call the renamed functions and add the
// KubEnergy plugins to their results. This repository contains no copy of Kubernetes code, and the tests are
// compiled without changes.
package main
