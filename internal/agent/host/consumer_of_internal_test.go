package host

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// TestConsumerOf verifies that a process belongs to the innermost consumer of its control group, also if the agent
// runs in its own cgroup namespace.
func TestConsumerOf(t *testing.T) {
	for _, version := range []int{1, 2} {
		k := newKernel(t, version)
		uid, cid := "6b0d7f8e-4c1f-4a57-9c55-1f0b6d2a7e11", strings.Repeat("0c7e", 16)
		other := strings.Repeat("a1b2", 16)
		pod := "/kubepods/burstable/pod" + uid
		loose := strings.Repeat("c3d4", 16)
		colon := "/system.slice/containerd.service/" + colon(uid, loose)
		k.make(pod+"/"+cid, "/kubepods/burstable/pod11111111-2222-3333-4444-555555555555/"+other, "/user.slice", colon)
		for pid, group := range []string{
			pod + "/" + cid, pod + "/" + cid + "/inner", pod, "/user.slice/session", "/",
			"/../../../../" + "besteffort/pod7/" + other, "/../" + strings.Repeat("9", 64), "/../..",
			colon + "/init", "/../.." + colon,
		} {
			k.process(100+pid, "python3", group, time.Second)
		}
		r := k.open(Options{})
		r.sweep()
		r.sweep()
		own := energy.ContainerID(uid, cid)
		for pid, want := range []string{
			own, own, energy.ContainerID(uid, ""), energy.System, energy.System,
			energy.ContainerID("11111111-2222-3333-4444-555555555555", other), "", "",
			energy.ContainerID(uid, loose), energy.ContainerID(uid, loose),
		} {
			if have := r.ConsumerOf(100 + pid); have != want {
				text, _ := r.io.slurp(filepath.Join(k.proc, strconv.Itoa(100+pid)), "/cgroup", 4096)
				t.Errorf("version %d, %q: ConsumerOf() = %q, want %q", version, text, have, want)
			}
		}
		if have := r.ConsumerOf(999); have != "" {
			t.Errorf("ConsumerOf() of an exited process = %q, want none", have)
		}
	}
}
