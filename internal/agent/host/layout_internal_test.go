package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const s = time.Second

// under returns a UID as written by the systemd driver.
func under(uid string) string { return strings.ReplaceAll(uid, "-", "_") }

// colon returns the name of a container if the kubelet uses systemd and containerd does not.
func colon(uid, id string) string {
	return "kubepods-burstable-pod" + under(uid) + ".slice:cri-containerd:" + id
}

// TestLayouts covers the layouts of kubelets, container runtimes and libvirt, with one second of CPU time in each
// leaf.
func TestLayouts(t *testing.T) {
	pods := map[string]time.Duration{
		"pod/" + uidA: 0, "pod/" + uidA + "/" + idA: s, "pod/" + uidA + "/" + idB: s, "system": 0,
	}
	burstable := "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under(uidA) + ".slice/"
	nested := "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod" +
		under(uidA) + ".slice/"
	for name, tt := range map[string]struct {
		leaves []string
		groups []string
		want   map[string]time.Duration
	}{
		"cgroupfs burstable": {leaves: []string{
			"kubepods/burstable/pod" + uidA + "/" + idA, "kubepods/burstable/pod" + uidA + "/" + idB,
		}, want: pods},
		"cgroupfs guaranteed": {
			leaves: []string{"kubepods/pod" + uidA + "/" + idA, "kubepods/pod" + uidA + "/" + idB},
			want:   pods,
		},
		"cgroupfs below another": {
			leaves: []string{
				"k8s/besteffort/x/kubepods/besteffort/pod" + uidA + "/" + idA,
				"k8s/besteffort/x/kubepods/besteffort/pod" + uidA + "/" + idB,
			},
			want: pods,
		},
		"cgroupfs CRI-O": {
			leaves: []string{
				"kubepods/burstable/pod" + uidA + "/crio-" + idA, "kubepods/burstable/pod" + uidA + "/crio-conmon-" +
					idA,
			},
			want: map[string]time.Duration{"pod/" + uidA: s, "pod/" + uidA + "/" + idA: s, "system": 0},
		},
		"systemd containerd": {leaves: []string{
			burstable + "cri-containerd-" + idA + ".scope", burstable + "cri-containerd-" + idB + ".scope",
		}, want: pods},
		"systemd docker": {leaves: []string{
			burstable + "docker-" + idA + ".scope", burstable + "docker-" + idB + ".scope",
		}, want: pods},
		"systemd CRI-O": {
			leaves: []string{
				burstable + "crio-" + idA + ".scope/container", burstable + "crio-conmon-" + idA + ".scope",
				burstable + "crio-" + idB + ".scope",
			},
			want: map[string]time.Duration{
				"pod/" + uidA: s, "pod/" + uidA + "/" + idA: s, "pod/" + uidA + "/" + idB: s, "system": 0,
			},
		},
		"systemd guaranteed": {
			leaves: []string{"kubepods.slice/kubepods-pod" + under(uidA) + ".slice/cri-containerd-" + idA + ".scope"},
			want:   map[string]time.Duration{"pod/" + uidA: 0, "pod/" + uidA + "/" + idA: s, "system": 0},
		},
		"systemd below another": {leaves: []string{
			nested + "cri-containerd-" + idA + ".scope", nested + "cri-containerd-" + idB + ".scope",
		}, want: pods},
		"kind": {
			leaves: []string{
				"system.slice/docker-" + idB + ".scope/" + nested + "cri-containerd-" + idA + ".scope",
				"system.slice/docker-" + idB + ".scope/" + nested + "cri-containerd-" + idB + ".scope",
			}, want: pods,
		},
		"systemd kubelet, cgroupfs containerd, below its service": {
			leaves: []string{
				burstable + "nothing", "system.slice/containerd.service/" + colon(uidA, idA) + "/init",
				"system.slice/containerd.service/" + colon(uidA, idB), "system.slice/containerd.service/shim",
			}, want: map[string]time.Duration{
				"pod/" + uidA: s, "pod/" + uidA + "/" + idA: s, "pod/" + uidA + "/" + idB: s, "system": s,
			},
		},
		"systemd kubelet, cgroupfs containerd, at the root": {
			leaves: []string{colon(uidA, idA), "kubepods-pod" + under(uidA) + ".slice:cri-containerd:" + idB},
			want:   map[string]time.Duration{"pod/" + uidA + "/" + idA: s, "pod/" + uidA + "/" + idB: s, "system": 0},
		},
		"systemd kubelet, cgroupfs containerd, in kind": {
			leaves: []string{
				"docker/" + idB + "/system.slice/kubelet-" + colon(uidA, idA),
				"user.slice/user-1000.slice/user@1000.service/k3s-rootless.service/" + colon(uidA, idB),
			}, want: map[string]time.Duration{"pod/" + uidA + "/" + idA: s, "pod/" + uidA + "/" + idB: s, "system": 0},
		},
		"systemd kubelet, cgroupfs containerd, inside kubepods.slice": {
			leaves: []string{"kubepods.slice/" + colon(uidA, idA), burstable + colon(uidA, idB)},
			want: map[string]time.Duration{
				"pod/" + uidA: 0, "pod/" + uidA + "/" + idA: s, "pod/" + uidA + "/" + idB: s, "system": 0,
			},
		},
		"systemd kubelet, cgroupfs Docker": {
			leaves: []string{
				burstable + "nothing", "kubepods-burstable-pod" + under(uidA) + ".slice/" + idA,
				"docker/kubepods-burstable-pod" + under(uidA) + ".slice/" + idB,
			}, want: map[string]time.Duration{
				"pod/" + uidA: s, "pod/" + uidA + "/" + idA: s, "pod/" + uidA + "/" + idB: s, "system": 0,
			},
		},
		"containers of other runtimes in a pod": {
			leaves: []string{
				burstable + "libpod-" + idA + ".scope/container", burstable + "nerdctl-" + idB + ".scope",
				burstable + "kata_" + idB, burstable + "libpod-conmon-" + idB + ".scope",
			}, want: map[string]time.Duration{
				"pod/" + uidA: 2 * s, "pod/" + uidA + "/" + idA: s, "pod/" + uidA + "/" + idB: s, "system": 0,
			},
		},
		"containers that only look like those of a pod": {
			leaves: []string{
				burstable + "cri-containerd-" + idA + ".scope/" + colon(uidB, idB),
				"kubepods-burstable-pod...slice:cri-containerd:" + idA, colon(uidB, "conmon-"+idB),
				"burstable-pod" + uidB + ".slice:cri-containerd:" + idB,
			}, want: map[string]time.Duration{"pod/" + uidA: 0, "pod/" + uidA + "/" + idA: s, "system": 3 * s},
		},
		"static pod": {
			leaves: []string{"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + hash +
				".slice/cri-containerd-" + idA + ".scope"},
			want: map[string]time.Duration{"pod/" + hash: 0, "pod/" + hash + "/" + idA: s, "system": 0},
		},
		"systemd and docker inside a container": {
			leaves: []string{
				burstable + "cri-containerd-" + idA + ".scope/init.scope", burstable + "cri-containerd-" + idA +
					".scope/system.slice/sshd.service",
				burstable + "cri-containerd-" + idA + ".scope/docker/" + idB,
				burstable + "cri-containerd-" + idA + ".scope/kubepods/pod" + uidB + "/" + idB,
			},
			want: map[string]time.Duration{"pod/" + uidA: 0, "pod/" + uidA + "/" + idA: 4 * s, "system": 0},
		},
		"what else is in a pod": {
			leaves: []string{
				burstable + "init.scope", burstable + "kata_overhead", burstable + "cri-containerd-" + idA + ".scope",
			},
			want: map[string]time.Duration{"pod/" + uidA: 2 * s, "pod/" + uidA + "/" + idA: s, "system": 0},
		},
		"services": {
			leaves: []string{
				"system.slice/sshd.service", "init.scope", "user.slice/user-0.slice/session-1.scope",
				"kubepods.slice/garbage",
			},
			want: map[string]time.Duration{"system": 4 * s},
		},
		"libvirt with systemd": {
			leaves: []string{
				`machine.slice/machine-qemu\x2d3\x2dweb\x2d1.scope/libvirt/emulator`,
				`machine.slice/machine-qemu\x2d3\x2dweb\x2d1.scope/libvirt/vcpu0`,
				`machine.slice/machine-qemu\x2d4\x2d` + strings.Repeat("n", 40) + `\x2.scope`,
			},
			want: map[string]time.Duration{"vm/web-1": 2 * s, "vm/" + strings.Repeat("n", 40) + `\x2`: s, "system": 0},
		},
		"libvirt without systemd": {
			leaves: []string{"machine/qemu-3-web.libvirt-qemu/vcpu0", "machine/qemu-4-db.libvirt-qemu"},
			want:   map[string]time.Duration{"vm/web": s, "vm/db": s, "system": 0},
		},
		"two machines of one name": {
			leaves: []string{
				`machine.slice/machine-qemu\x2d3\x2dweb.scope`, `machine.slice/machine-qemu\x2d4\x2dweb.scope`,
			},
			want: map[string]time.Duration{"vm/web": s, "vm/web#qemu-4-web": s, "system": 0},
		},
		"KubeVirt": {
			leaves: []string{burstable + "cri-containerd-" + idA + `.scope/machine/qemu-1-default_vm.libvirt-qemu`},
			want:   map[string]time.Duration{"pod/" + uidA: 0, "pod/" + uidA + "/" + idA: s, "system": 0},
		},
		"Slurm": {
			leaves: []string{
				"slurm/uid_7/job_1/step_0", "slurm/uid_7/job_1/step_batch/task_0", "slurm/uid_7/job_1/step_batch",
				"system.slice/slurmstepd.scope/job_2/step_0/user", "slurm/uid_7/job_3",
			},
			groups: []string{"slurm/uid_*/job_*/step_*", "/system.slice/slurmstepd.scope/job_*/step_*"},
			want: map[string]time.Duration{
				"cgroup/slurm/uid_7/job_1/step_0": s, "cgroup/slurm/uid_7/job_1/step_batch": 2 * s,
				"cgroup/system.slice/slurmstepd.scope/job_2/step_0": s, "system": s,
			},
		},
		"Slurm inside a container": {
			leaves: []string{
				burstable + "cri-containerd-" + idA + ".scope/system.slice/slurmstepd.scope/job_2/step_0/user/task_0",
				burstable + "cri-containerd-" + idA + ".scope/system.slice/slurmstepd.scope/system",
			},
			groups: []string{"kubepods.slice/*/*/*/system.slice/slurmstepd.scope/job_*/step_*"},
			want: map[string]time.Duration{
				"pod/" + uidA: 0, "pod/" + uidA + "/" + idA: s, "system": 0,
				"cgroup/" + burstable + "cri-containerd-" + idA + ".scope/system.slice/slurmstepd.scope/job_2/step_0": s,
			},
		},
		"groups inside each other, and pods inside a group": {
			leaves: []string{"a/b", "a/c", "a/kubepods/pod" + uidA + "/" + idA},
			groups: []string{"a", "a/b"},
			want: map[string]time.Duration{
				"cgroup/a": s, "cgroup/a/b": s, "pod/" + uidA: 0, "pod/" + uidA + "/" + idA: s, "system": 0,
			},
		},
	} {
		for _, version := range []int{1, 2} {
			t.Run(name+versionName(version), func(t *testing.T) {
				k := newKernel(t, version)
				k.make(tt.leaves...)
				for _, l := range tt.leaves {
					k.burn(l, s)
				}
				r := k.open(Options{Groups: tt.groups})
				r.sweep()
				r.want(tt.want)
				// Repeat the test with groups that are created while the host is running.
				k2 := newKernel(t, version)
				r2 := k2.open(Options{Groups: tt.groups})
				r2.sweep()
				k2.make(tt.leaves...)
				for _, l := range tt.leaves {
					k2.burn(l, s)
				}
				r2.sweep()
				r2.want(tt.want)
				if got := r2.last.Busy; got != k2.busy {
					t.Errorf("Busy = %v, want %v", got, k2.busy)
				}
			})
		}
	}
}

func versionName(v int) string { return map[int]string{1: " v1", 2: " v2"}[v] }

func TestHierarchies(t *testing.T) {
	for name, tt := range map[string]struct {
		files []string
		links map[string]string
		want  []string // version, directory, tree of cpu.shares
	}{
		"unified": {files: []string{"cgroup.controllers"}, want: []string{"2 ."}},
		"version 1, apart": {
			files: []string{"cpu/cpu.shares", "cpuacct/cpuacct.usage", "cpuacct/release_agent"},
			want:  []string{"1 cpuacct cpu whole"},
		},
		"version 1, together": {
			files: []string{"cpu,cpuacct/cpu.shares", "cpu,cpuacct/cpuacct.usage"},
			links: map[string]string{"cpu": "cpu,cpuacct", "cpuacct": "cpu,cpuacct"},
			want:  []string{"1 cpu,cpuacct cpu,cpuacct"},
		},
		"hybrid": {
			files: []string{"cpuacct/cpuacct.usage", "unified/cgroup.controllers", "unified/cgroup.type"},
			want:  []string{"1 cpuacct", "2 unified"},
		},
		"bind mount of one tree": {files: []string{"cpuacct.usage", "cpu.shares"}, want: []string{"1 . ."}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, f := range tt.files {
				if err := os.MkdirAll(filepath.Join(root, filepath.Dir(f)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, f), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for l, to := range tt.links {
				if err := os.Symlink(to, filepath.Join(root, l)); err != nil {
					t.Fatal(err)
				}
			}
			found, err := hierarchies(root)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range found {
				words := []string{strconv.Itoa(h.version)}
				for _, dir := range []string{h.dir, h.shares} {
					if rel, err := filepath.Rel(root, dir); dir != "" && err == nil {
						words = append(words, rel)
					}
				}
				if h.version == 1 && h.whole {
					words = append(words, "whole")
				}
				got = append(got, strings.Join(words, " "))
			}
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
	if _, err := Open(Options{Root: t.TempDir(), Proc: t.TempDir()}, nil); err == nil {
		t.Error("opened a directory without control groups")
	}
	if _, err := Open(Options{Root: t.TempDir(), Groups: []string{"a/[/b"}}, nil); err == nil {
		t.Error("accepted an invalid pattern")
	}
}

// TestBothVersions covers one pod in both hierarchies, and two pods in one of them each.
func TestBothVersions(t *testing.T) {
	root := t.TempDir()
	v1, v2 := newKernel(t, 1), newKernel(t, 2)
	v2.proc = v1.proc
	for name, k := range map[string]*kernel{"cpuacct": v1, "unified": v2} {
		dir := filepath.Join(root, name)
		if err := os.Rename(k.dir, dir); err != nil {
			t.Fatal(err)
		}
		k.dir = dir
	}
	uidC := "cccccccc-bbbb-cccc-dddd-eeeeeeeeeeee"
	both := "kubepods/pod" + uidA + "/" + idA
	v1.make(both, "kubepods/burstable/pod"+uidB+"/"+idB)
	v2.make(both, "kubepods.slice/kubepods-pod"+under(uidC)+".slice/docker-"+idB+".scope")
	v1.burn(both, 3*s)
	v2.burn(both, 3*s)
	v1.burn("kubepods/burstable/pod"+uidB+"/"+idB, 2*s)
	v2.burn("kubepods.slice/kubepods-pod"+under(uidC)+".slice/docker-"+idB+".scope", s)
	v1.burn("", s+10*s) // time of the system and of version 2
	k := *v1
	k.dir = root
	r := k.open(Options{})
	r.sweep()
	r.want(map[string]time.Duration{
		"pod/" + uidA: 0, "pod/" + uidA + "/" + idA: 3 * s,
		"pod/" + uidB: 0, "pod/" + uidB + "/" + idB: 2 * s,
		"pod/" + uidC: 0, "pod/" + uidC + "/" + idB: s,
		"system": 10 * s,
	})
	if got := r.Stats().Duplicates; got != 1 {
		t.Errorf("%d duplicates, want those of the pod in both hierarchies", got)
	}
}

// TestBusyOfProc verifies that /proc/stat is used if the mount point is not the root of a hierarchy.
func TestBusyOfProc(t *testing.T) {
	k := newKernel(t, 2)
	k.write(filepath.Join(k.dir, "cgroup.type"), "domain\n")
	r := k.open(Options{})
	r.sweep()
	if want := (1 + 2 + 3 + 6 + 7) * 10 * time.Millisecond; r.last.Busy != want || r.last.CPUs != 2 {
		t.Errorf("Busy = %v with %v CPUs, want %v and 2", r.last.Busy, r.last.CPUs, want)
	}
	if err := os.Remove(filepath.Join(k.proc, "stat")); err != nil {
		t.Fatal(err)
	}
	r = k.open(Options{})
	r.sweep()
	r.want(map[string]time.Duration{})
	if r.last.Busy != 0 || r.last.Usage == nil {
		t.Errorf("Busy = %v, usage %v: want an empty sweep", r.last.Busy, r.last.Usage)
	}
}
