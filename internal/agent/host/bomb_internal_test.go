package host

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestBombs verifies that containers are still found and that ticks are fast if a user creates very many groups.
//
//test:norace
func TestBombs(t *testing.T) {
	k, machine := newKernel(t, 2), kit.WatchMachine(t)
	k.make("kubepods/burstable", podB+"/"+idB)
	r := k.open(Options{Max: 200, Groups: []string{"bomb/*", "deep/*/*"}})
	tick := func(what string) {
		t.Helper()
		began := time.Now()
		r.sweep()
		took := time.Since(began)
		t.Logf("%s: %v, %+v", what, took, r.Stats())
		if took > 2*time.Second { // many times the duration on an idle machine
			machine.TooSlow("%s: a tick took %v", what, took)
		}
		if got := r.consumers(); got > 200 {
			t.Errorf("%s: %d consumers", what, got)
		}
	}
	tick("before")
	// Siblings in a watched directory, more than fit into the kernel's event queue.
	k.make("bomb")
	tick("one")
	for i := range 20_000 {
		k.mkdir(filepath.Join(k.dir, "bomb", strconv.Itoa(i)))
	}
	k.make(podA + "/" + idA)
	k.burn(podA+"/"+idA, s)
	tick("many")
	if _, ok := r.known["pod/"+uidA+"/"+idA]; !ok {
		t.Error("groups that match a pattern displaced a pod")
	}
	if r.Stats().Overflows == 0 {
		t.Error("no event was lost: the test creates too few groups")
	}
	// Deeply nested groups with the longest possible names, exceeding the maximum path length.
	dir := filepath.Join(k.dir, "deep")
	k.mkdir(dir)
	deepen(t, dir, strings.Repeat("n", 255), 200)
	r.clock += walkInterval
	tick("deep")
	// Groups inside a container are not visited.
	for i := range 2000 {
		k.mkdir(filepath.Join(k.dir, podB, idB, strconv.Itoa(i)))
	}
	watches := len(r.watch.places)
	tick("inside")
	if got := len(r.watch.places); got != watches {
		t.Errorf("watches changed from %d to %d", watches, got)
	}
	k.burn(podB+"/"+idB, s)
	tick("after")
	if r.known["pod/"+uidB+"/"+idB] != s || r.credited() != k.busy {
		t.Errorf("credited %v of %v, container %v", r.credited(), k.busy, r.known["pod/"+uidB+"/"+idB])
	}
}

// deepen creates nested directories.
func deepen(t *testing.T, dir, name string, levels int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range levels {
		if err := unix.Mkdirat(at, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_DIRECTORY, 0)
		_ = unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	_ = unix.Close(at)
}

// TestDescriptors verifies that the number of open descriptors is limited.
func TestDescriptors(t *testing.T) {
	k := newKernel(t, 1)
	for i := range 20 {
		k.make(fmt.Sprintf("kubepods/pod%032d/%064d", i, i))
	}
	r := k.open(Options{})
	r.limit = 7
	before := descriptors(t)
	r.sweep()
	for i := range 20 {
		k.burn(fmt.Sprintf("kubepods/pod%032d/%064d", i, i), s)
	}
	r.sweep()
	if got := descriptors(t) - before; got > 7 || r.Stats().Kept != 7 {
		t.Errorf("%d more descriptors, %d kept", got, r.Stats().Kept)
	}
	for i := range 20 {
		if got := r.known[fmt.Sprintf("pod/%032d/%064d", i, i)]; got != s {
			t.Errorf("container %d has %v", i, got)
		}
	}
}

// TestNothingIsAllocated verifies that a sweep allocates no memory.
func TestNothingIsAllocated(t *testing.T) {
	k := newKernel(t, 2)
	for i := range 20 {
		k.make(fmt.Sprintf("kubepods/pod%032d/%064d", i, i))
		k.shares(fmt.Sprintf("kubepods/pod%032d/%064d", i, i), 100)
	}
	r := k.open(Options{})
	r.io = newFiles()
	r.limit = 20
	r.sweep()
	r.sweep()
	if got := testing.AllocsPerRun(50, func() {
		r.clock += time.Second
		for _, n := range r.byDir {
			n.delta = 1 // make all nodes active
		}
		if err := r.Sweep(&r.last); err != nil {
			t.Fatal(err)
		}
	}); got > 0 {
		t.Errorf("%v allocations per sweep", got)
	}
}
