// Package vm meters pods inside virtual machines. The pipeline consists of the meter of the host, the released
// agent on the host, virtiofs, the released agent in the guest and a Prometheus outside of the guests. The package
// also measures the age of readings in a guest by the number of guests and the resource usage of the pipeline.
//
// On a host without RAPL, such as a virtual machine, the test simulates a counter based on the CPU time of the
// guests. In this case, power values reflect the model of the test, whereas sums, shares and ages are meaningful.
//
// In addition to the requirements of package test/kit/guest, the tests require virtiofsd and Prometheus. They run
// only if KUBENERGY_REAL is set, for example with `make e2e-vm`, and write tables and plots to out/vm.
package vm
