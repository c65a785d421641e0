package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// TestStateGoesOn restores the state of a killed host in another one, and verifies that groups that started, ended
// and computed in the meantime are reported once.
func TestStateGoesOn(t *testing.T) {
	for _, version := range []int{1, 2} {
		k := newKernel(t, version)
		machine := `machine.slice/machine-qemu\x2d3\x2dweb.scope`
		loose := "system.slice/containerd.service/" + colon(uidA, hash)
		k.make(podA+"/"+idA, podA+"/"+idB, podB+"/"+idB, machine, loose)
		k.mkdir(filepath.Join(k.proc, "sys/kernel/random"))
		k.write(filepath.Join(k.proc, "sys/kernel/random/boot_id"), hash+"\n")
		r := k.open(Options{})
		for _, p := range []string{podA + "/" + idA, podA + "/" + idB, podB + "/" + idB, machine, loose, ""} {
			k.burn(p, s)
		}
		r.sweep()
		k.burn(podA+"/"+idA, s)
		k.remove(podA + "/" + idA)
		r.sweep()
		state := r.AppendState(nil)
		if err := r.RestoreState(state); err != nil {
			t.Fatal(err)
		}
		if again := r.AppendState(nil); string(again) != string(state) {
			t.Fatalf("the restored state differs:\n%q\n%q", state, again)
		}

		k.burn(podA+"/"+idB, s)
		k.burn(podB+"/"+idB, 2*s)
		k.remove(podB)
		k.burn(machine, s)
		k.burn("", s)
		uidC := "cccccccc-2222-3333-4444-555555555555"
		k.make("kubepods/burstable/pod" + uidC + "/" + idA)
		k.burn("kubepods/burstable/pod"+uidC+"/"+idA, s)
		again := k.open(Options{})
		if err := again.RestoreState(state); err != nil {
			t.Fatal(err)
		}
		again.known, again.credit = r.known, r.credit
		again.sweep()
		again.wantEnded(map[string]time.Duration{"pod/" + uidB: 2 * s, "pod/" + uidB + "/" + idB: s})
		again.want(map[string]time.Duration{
			"pod/" + uidA: s, "pod/" + uidA + "/" + idB: 2 * s, "pod/" + uidC: 0, "pod/" + uidC + "/" + idA: s,
			"pod/" + uidA + "/" + hash: s, "vm/web": 2 * s, "system": 2 * s,
		})
		if again.credited() != k.busy {
			t.Errorf("credited %v, used %v", again.credited(), k.busy)
		}

		k.write(filepath.Join(k.proc, "sys/kernel/random/boot_id"), "another\n")
		if err := k.open(Options{}).RestoreState(state); !errors.Is(err, ErrOtherBoot) {
			t.Errorf("restoring a state of another boot: %v", err)
		}
		for i := range state {
			if err := again.RestoreState(state[:i]); err == nil {
				t.Fatalf("restored a state of %d bytes from its first %d bytes", len(state), i)
			}
		}
	}
}

// TestStateOfFormerAgents verifies that the recorded state in testdata/state-1 can be restored after an update
// of the agent.
func TestStateOfFormerAgents(t *testing.T) {
	state, err := os.ReadFile("testdata/state-1")
	if err != nil {
		t.Fatal(err)
	}
	k := newKernel(t, 1)
	k.make("")
	r := k.open(Options{VMs: true, Groups: []string{"slurm/*"}})
	if err := r.RestoreState(state); err != nil {
		t.Fatal(err)
	}
	if again := r.AppendState(nil); string(again) != string(state) {
		t.Errorf("the restored state differs:\n%q\n%q", state, again)
	}
	var ids []string
	for id := range r.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	want := []string{
		"cgroup/slurm/job_1", "pod/" + uidA, "pod/" + uidA + "/" + idA, "pod/" + uidB, "vm/web", "vm/web#pid-103",
	}
	if !slices.Equal(ids, want) || r.byID["cgroup/slurm/job_1"].total != s {
		t.Errorf("found %q, want %q", ids, want)
	}
}

func FuzzRestoreState(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{'K', 'H', stateVersion, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	k := newKernel(f, 1)
	k.make(podA+"/"+idA, podB+"/"+idB, `machine.slice/machine-qemu\x2d3\x2dweb.scope`, "slurm/job_1")
	k.burn(podA+"/"+idA, s)
	k.process(103, "kvm -name web", "/", s)
	r := k.open(Options{VMs: true, Groups: []string{"slurm/*"}})
	r.sweep()
	f.Add(r.AppendState(nil))
	f.Fuzz(func(t *testing.T, state []byte) {
		defer memtest.Limit(t, 100*len(state))()
		k := &kernel{t: t, version: 1, dir: t.TempDir(), used: map[string]time.Duration{}}
		k.proc = k.dir
		k.write(filepath.Join(k.dir, "release_agent"), "\n")
		k.count("")
		r := k.open(Options{Max: 100})
		if err := r.RestoreState(state); err != nil {
			if len(r.byDir) > 0 || len(r.root.children) > 0 {
				t.Fatal("a damaged state changed the host")
			}
			return
		}
		again := r.AppendState(nil)
		other := k.open(Options{Max: 100})
		if err := other.RestoreState(again); err != nil {
			t.Fatalf("the saved state cannot be restored: %v\n%q\n%q", err, state, again)
		}
		r.sweep()
		r.sweep()
	})
}
