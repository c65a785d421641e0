// Package vm meters pods inside of virtual machines: from the host's meter through the agent on the host, virtiofs and
// the agent in the guest to a Prometheus outside, all of them as they are released. It also measures how old a reading
// in a guest is by the number of guests, and what the parts of the pipeline use.
//
// A host without RAPL, as any virtual machine, gets a counter that the test drives from the CPU time of the guests.
// What the figures say of watts is then the test's model; what they say of joules that add up, of shares and of ages
// is not.
//
// Package test/kit/guest says what the tests need, besides virtiofsd and Prometheus. They run where KUBENERGY_REAL is
// set, as `make e2e-vm` does, and write tables and plots to out/vm.
package vm
