package host

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestUnattributed verifies that groups that look like workloads are reported if they used more than 1 % of the CPU
// time in the last minute, and that the system's own groups are not.
func TestUnattributed(t *testing.T) {
	docker := "system.slice/docker-" + idA + ".scope"
	sluid := "system.slice/slurmstepd.scope/s5K1KKYAYG5D00"
	pattern := "/system.slice/slurmstepd.scope/job_*/step_*"
	for name, tt := range map[string]struct {
		leaves []string // each uses 10 s
		groups []string
		busy   time.Duration // of the rest of the node
		max    int
		want   []string // reported groups
		never  []string // unmatched patterns
	}{
		"Docker":            {leaves: []string{docker}, want: []string{"/" + docker}},
		"Docker, cgroupfs":  {leaves: []string{"docker/" + idA}, want: []string{"/docker/" + idA}},
		"Docker, less":      {leaves: []string{docker}, busy: 1000 * s},
		"Docker, requested": {leaves: []string{docker}, groups: []string{"/system.slice/docker-*.scope"}},
		"Podman, rootless": {
			leaves: []string{
				"user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + idA + ".scope/container",
				"user.slice/user-1000.slice/user@1000.service/user.slice/libpod-conmon-" + idA + ".scope",
			}, want: []string{"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + idA + ".scope"},
		},
		"kind on Docker": {leaves: []string{
			docker + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + under(uidA) +
				".slice/cri-containerd-" + idA + ".scope", docker + "/init.scope",
		}},
		"another kubelet": {
			leaves: []string{"custom.slice/custom-pod" + under(uidA) + ".slice/x", "kubepods.slice/garbage"},
			want:   []string{"/custom.slice/custom-pod" + under(uidA) + ".slice", "/kubepods.slice/garbage"},
		},
		"another notation": {
			leaves: []string{"system.slice/containerd.service/kubepods-x.slice:youki:abc"},
			want:   []string{"/system.slice/containerd.service/kubepods-x.slice:youki:abc"},
		},
		"Kata": {
			leaves: []string{
				"kubepods/pod" + uidA + "/" + idA, "kata_overhead/" + idA, "kata_overhead/kubepods/pod" + uidA + "/" + idA,
			}, want: []string{"/kata_overhead/" + idA, "/kata_overhead/kubepods/pod" + uidA},
		},
		"Slurm by SLUID": {
			leaves: []string{sluid + "/step_0/user/task_0"}, groups: []string{pattern}, want: []string{"/" + sluid},
			never: []string{pattern},
		},
		"Slurm by SLUID, requested": {
			leaves: []string{sluid + "/step_0/user/task_0"}, groups: []string{"/system.slice/slurmstepd.scope/*/step_*"},
		},
		"Slurm without a pattern": {leaves: []string{sluid + "/step_0"}, want: []string{"/" + sluid}},
		"next to a match": {
			leaves: []string{"batch.slice/a.scope", "batch.slice/b.run", "batch.slice/c.service", "else/b.run"},
			groups: []string{"batch.slice/*.scope"}, want: []string{"/batch.slice/b.run"},
		},
		"job without steps": {
			leaves: []string{"slurm/uid_7/job_1/step_0", "slurm/uid_7/job_2"}, groups: []string{"slurm/uid_*/job_*/step_*"},
			want: []string{"/slurm/uid_7/job_2"},
		},
		"other batch systems": {
			leaves: []string{
				"system.slice/pbs.service/jobid/12.server", "lsf/cluster/job.12.3.4", "lxc/web",
				"system.slice/condor.service/condor_var_lib_slot1_1@node",
				"nomad.slice/share.slice/aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee.web.scope",
			}, want: []string{
				"/lsf/cluster/job.12.3.4", "/lxc/web",
				"/nomad.slice/share.slice/aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee.web.scope",
				"/system.slice/condor.service/condor_var_lib_slot1_1@node", "/system.slice/pbs.service/jobid/12.server",
			},
		},
		"system": {
			leaves: []string{
				"system.slice/kubelet.service", "system.slice/containerd.service", "init.scope", "kubepods/burstable",
				"system.slice/crio-conmon-" + idA + ".scope", "user.slice/user-0.slice/session-1.scope",
				"system.slice/run-r" + hash + ".scope", "machine.slice", "system.slice/slurmstepd.scope/system",
			}, groups: []string{"/slurm/*/x"}, never: []string{"/slurm/*/x"},
		},
		"beyond the limit": {
			leaves: []string{"kubepods/pod" + uidA + "/" + idA, "kubepods/pod" + uidB + "/" + idB}, max: 1,
			want: []string{"/kubepods/pod" + uidB},
		},
	} {
		for _, version := range []int{1, 2} {
			t.Run(name+versionName(version), func(t *testing.T) {
				k := newKernel(t, version)
				k.make(tt.leaves...)
				r := k.open(Options{Groups: tt.groups, Max: tt.max})
				r.sweep()
				for _, l := range tt.leaves {
					k.burn(l, 10*s)
				}
				k.burn("", tt.busy)
				r.sweep()
				if st := r.Stats(); st.Unattributed != nil || st.Unmatched != nil {
					t.Errorf("reported %v, %v within the first minute", st.Unattributed, st.Unmatched)
				}
				r.clock += time.Minute
				r.sweep()
				got := []string{}
				for _, g := range r.Stats().Unattributed {
					got = append(got, g.Group)
					if want := 10 / (10*float64(len(tt.leaves)) + tt.busy.Seconds()); g.Ratio < want*0.99 || g.Ratio > 2.01*want {
						t.Errorf("%s has %v of the CPU time, want %v", g.Group, g.Ratio, want)
					}
				}
				if slices.Sort(got); !slices.Equal(got, tt.want) {
					t.Errorf("reported %q, want %q", got, tt.want)
				}
				if got := r.Stats().Unmatched; !slices.Equal(got, tt.never) {
					t.Errorf("unmatched patterns %q, want %q", got, tt.never)
				}
				if got, want := len(r.stats.Findings()), min(len(tt.want), 1)+len(tt.never); got != want {
					t.Errorf("%d findings, want %d", got, want)
				}
				r.clock += time.Minute
				k.burn("", s)
				if r.sweep(); r.Stats().Unattributed != nil {
					t.Errorf("reported %v after an idle minute", r.Stats().Unattributed)
				}
			})
		}
	}
}

// TestUnattributedIsBounded covers many groups, their first minute, and the log.
func TestUnattributedIsBounded(t *testing.T) {
	k := newKernel(t, 2)
	r := k.open(Options{Groups: []string{"/slurm/*"}})
	var log strings.Builder
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	for range 3 {
		r.sweep()
		for i := range 2 * maxCandidates {
			p := fmt.Sprintf("docker/%064x", i)
			k.make(p)
			k.burn(p, s)
		}
		k.burn("", maxCandidates*s)
		r.clock += time.Minute
	}
	r.sweep()
	got := r.Stats().Unattributed
	sum := 0.0
	for _, g := range got {
		sum += g.Ratio
	}
	if len(got) != maxReported || got[maxReported-1].Group != "other" || sum < 0.33 || sum > 0.34 {
		t.Errorf("reported %v with a sum of %v", got, sum)
	}
	if n := strings.Count(log.String(), "belongs to no consumer"); n != 1 {
		t.Errorf("%d warnings within an hour, want 1:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), "has not matched"); n != 1 {
		t.Errorf("%d warnings about the pattern, want 1:\n%s", n, log.String())
	}
	k.make("slurm/job")
	r.sweep()
	r.clock += time.Minute
	if r.sweep(); r.Stats().Unmatched != nil {
		t.Errorf("pattern %q is still unmatched", r.Stats().Unmatched)
	}
}
