package host

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func TestCounters(t *testing.T) {
	type parser = func([]byte) (time.Duration, bool)
	process := func(text []byte) (time.Duration, bool) {
		stat, ok := parseProcess(text)
		return stat.cpu, ok
	}
	node := func(text []byte) (time.Duration, bool) {
		stat, ok := parseStat(text)
		return stat.busy, ok
	}
	for _, tt := range []struct {
		name  string
		parse parser
		text  string
		want  time.Duration
		ok    bool
	}{
		{"cpu.stat", parseCPUStat, "usage_usec 12\nuser_usec 7\nsystem_usec 5\n", 12 * time.Microsecond, true},
		{"cpu.stat, in another order", parseCPUStat, "user_usec 7\nusage_usec 12\n", 12 * time.Microsecond, true},
		{"cpu.stat, of a likely name", parseCPUStat, "usage_usecs 7\nusage_usec2 3\n", 0, false},
		{"cpu.stat, half a number", parseCPUStat, "usage_usec 12", 0, false},
		{"cpu.stat, empty", parseCPUStat, "", 0, false},
		{"cpu.stat, too large", parseCPUStat, "usage_usec 9223372036854776\n", 0, false},
		{"cpu.stat, largest", parseCPUStat, "usage_usec 9223372036854775\n", 9223372036854775 * time.Microsecond, true},
		{"cpu.stat, negative", parseCPUStat, "usage_usec -1\n", 0, false},
		{
			"root, with stolen time", parseRootCPUStat, "usage_usec 100\nuser_usec 7\nsystem_usec 5\n",
			12 * time.Microsecond, true,
		},
		{"root, without the rest", parseRootCPUStat, "usage_usec 100\n", 100 * time.Microsecond, true},
		{"cpuacct.usage", parseUsage, "123456789\n", 123456789, true},
		{"cpuacct.usage, half", parseUsage, "1234", 0, false},
		{"cpuacct.usage, more", parseUsage, "1234\n5\n", 0, false},
		{"cpuacct.usage, too large", parseUsage, "18446744073709551615\n", 0, false},
		{"cpuacct.usage, far too large", parseUsage, "184467440737095516150\n", 0, false},
		{
			"process", process,
			"77 (a) b\n) 9 (x) S 1 2 3 4 5 6 7 8 9 10 150 25 99 99 20 0 1 0 4242 1 2\n", 1750 * time.Millisecond, true,
		},
		{"process, half", process, "77 (x) S 1 2 3 4 5 6 7 8 9 10 150 25 99 99 20 0 1 0 42", 0, false},
		{"process, cut", process, "77 (x) S 1 2 3 4 5 6 7 8 9 10 150\n", 0, false},
		{"process, no name", process, "77\n", 0, false},
		{"node", node, "cpu  10 20 30 1000 500 3 4 99 8 7\ncpu0 1 2 3 4\n", 670 * time.Millisecond, true},
		{"node, of an old kernel", node, "cpu 10 20 30 1000\n", 600 * time.Millisecond, true},
		{"node, cut", node, "cpu 10 20\n", 0, false},
		{"node, empty", node, "", 0, false},
		{"node, CPUs only", node, "cpu0 10 20 30 1000\n", 0, false},
	} {
		if got, ok := tt.parse([]byte(tt.text)); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s: %v, %v; want %v, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		`machine-qemu\x2d3\x2dweb.scope`:                 "web",
		`machine-qemu\x2d12\x2dweb\x2d1.scope`:           "web-1",
		`machine-qemu\x2dweb.scope`:                      "web", // libvirt before 1.3
		`machine-qemu\x2d3\x2d.scope`:                    "qemu-3-",
		`machine-qemu\x2d3.scope`:                        "qemu-3",
		`machine-qemu\x2d3\x2d\xc3\xa9t\xc3\xa9.scope`:   "été",
		`machine-qemu\x2d3\x2d..scope`:                   "", // sanitised, see below
		`machine-qemu\x2d3\x2da\x2fb.scope`:              "a_b",
		`machine-lxc\x2d3\x2dweb.scope`:                  "-",
		`machine-web.scope`:                              "-",
		`qemu-3-web.libvirt-qemu`:                        "web",
		`web.libvirt-qemu`:                               "web",
		`.libvirt-qemu`:                                  "-",
		`machine-qemu\x2d3\x2dweb\x2.scope`:              `web\x2`,
		`machine-qemu\x2d3\x2d` + "\xff" + `.scope`:      "_",
		`machine-qemu\x2d3\x2d` + "a\nb" + `.scope`:      "a_b",
		`machine-qemu\x2d3\x2d` + "x\u202ereverse.scope": "x_reverse",
	} {
		machine := machineName(name)
		if want == "-" {
			if machine != "" {
				t.Errorf("%q was parsed as machine %q, want none", name, machine)
			}
			continue
		}
		got, _, changed := strings.Cut(vmName(machine), "~")
		if got == "" || strings.ContainsAny(got, "/\n") || got == "." || got == ".." {
			t.Errorf("%q was parsed as machine %q", name, got)
		}
		if want != "" && got != want || changed != strings.Contains(want, "_") && want != "" {
			t.Errorf("%q was parsed as machine %q, want %q", name, vmName(machine), want)
		}
	}
	a, b := sanitise("a/b", maxVMName, false), sanitise("a\nb", maxVMName, false)
	if a == b {
		t.Errorf("different names were sanitised to %q", a)
	}
	if long := sanitise(strings.Repeat("é", 5000), maxVMName, false); len(long) > maxVMName ||
		!strings.Contains(long, "~") {
		t.Errorf("a long name was sanitised to %q", long)
	}
}

func TestCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on -S": "web",
		"qemu-system-aarch64 -name web":                                   "web",
		"qemu-system-aarch64 --name web":                                  "web",
		"/usr/libexec/qemu-kvm -m 5 -name process=x,guest=web":            "web",
		"kvm -name a=b":                           "a=b",
		"kvm -name guest=a,,b,debug-threads=on":   "a,b",
		"kvm -name debug-threads=on -uuid 1234-5": "1234-5",
		"kvm -uuid 1234-5":                        "1234-5",
		"kvm -m 512":                              "",
		"kvm -name":                               "",
		"kvm":                                     "",
		"bash -name web":                          "-",
		"/usr/bin/qemu-img convert":               "-",
		"/usr/lib/qemu/virtiofsd":                 "-",
		"":                                        "-",
		"grep qemu-system-x86_64 -name web":       "-",
		"qemu-system-x86_64 -name guest=../../etc":                     ".._.._etc~",
		"qemu-system-x86_64 -name guest=" + strings.Repeat("x", 10240): strings.Repeat("x", 119) + "~",
	} {
		got, ok := guestOf([]byte(strings.ReplaceAll(line, " ", "\x00") + "\x00"))
		if want == "-" {
			if ok {
				t.Errorf("%q was parsed as machine %q, want none", line, got)
			}
			continue
		}
		exact := got == want
		if strings.HasSuffix(want, "~") {
			exact = strings.HasPrefix(got, want) && len(got) == len(want)+8
		}
		if !ok || !exact {
			t.Errorf("%.80q was parsed as machine %q, %v, want %q", line, got, ok, want)
		}
	}
	if name, _ := guestOf([]byte("kvm\x00-name\x00a\nb\x00")); strings.Contains(name, "\n") {
		t.Errorf("name %q contains a newline", name)
	}
}

// TestConversions verifies that milli inverts both of runc's conversions.
func TestConversions(t *testing.T) {
	forward := map[conversion]func(shares float64) uint64{
		linear: func(s float64) uint64 { return 1 + uint64((s-2)*9999/262142) },
		quadratic: func(s float64) uint64 {
			l := math.Log2(s)
			return uint64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
		},
	}
	for rule, convert := range forward {
		for _, milli := range []float64{10, 26, 50, 100, 250, 500, 1000, 2500, 64000, 128000} {
			shares := math.Floor(milli * 1024 / 1000)
			got := rule.milli(convert(shares))
			allowed := 13.6 // half a step of the linear conversion
			if rule == quadratic {
				allowed = max(0.05*milli, 1.7)
			} else if milli < 27 {
				allowed = milli
			}
			if math.Abs(got-milli) > allowed {
				t.Errorf("rule %d: %v millicores were converted to %.1f", rule, milli, got)
			}
		}
		if rule.milli(convert(2)) != 0 {
			t.Errorf("rule %d: no request was converted to %v", rule, rule.milli(convert(2)))
		}
	}
	for milli := uint64(2); milli < 10000; milli++ {
		if got := sharesMilli(max(milli*1024/1000, 2)); milli > 2 && got != milli {
			t.Fatalf("%d millicores were converted to %d in version 1", milli, got)
		}
	}
	if quadratic.milli(math.MaxUint64) > 300000 || sharesMilli(math.MaxUint64) > 300000 {
		t.Error("the result is not bounded")
	}
}

func FuzzCounters(f *testing.F) {
	f.Add([]byte("usage_usec 12\nuser_usec 7\nsystem_usec 5\n"))
	f.Add([]byte("123456789\n"))
	f.Add([]byte("77 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 25 99 99 20 0 1 0 4242 1 2\n"))
	f.Add([]byte("cpu  10 20 30 1000 500 3 4 99 8 7\ncpu0 1 2 3 4\ncpu1"))
	f.Add([]byte("usage_usec 18446744073709551615\n"))
	f.Add([]byte("7:cpu,cpuacct:/a/b\n0::/c\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		check := func(what string, d time.Duration, ok bool) {
			if d < 0 {
				t.Errorf("%s is %v", what, d)
			}
			if ok && len(text) > 0 && !strings.Contains(string(text), "\n") {
				t.Errorf("parsed %s of an incomplete line", what)
			}
		}
		d, ok := parseCPUStat(text)
		check("cpu.stat", d, ok)
		d, ok = parseRootCPUStat(text)
		check("cpu.stat of the root", d, ok)
		d, ok = parseUsage(text)
		check("cpuacct.usage", d, ok)
		process, ok := parseProcess(text)
		check("a process", process.cpu, ok)
		stat, ok := parseStat(text)
		check("the node", stat.busy, ok)
		if stat.cpus < 0 {
			t.Error("negative number of CPUs")
		}
		for _, p := range groupsOf(text) {
			if p != "" && (p[0] != '/' || strings.Contains(p, "/../")) {
				t.Errorf("invalid group path %q", p)
			}
		}
	})
}

func FuzzPaths(f *testing.F) {
	f.Add("/kubepods/burstable/pod" + uidA + "/" + idA)
	f.Add("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + under(uidA) + ".slice/cri-containerd-" + idA +
		".scope")
	f.Add(`/machine.slice/machine-qemu\x2d3\x2dweb.scope/libvirt`)
	f.Add("/machine/qemu-3-web.libvirt-qemu")
	f.Add("kubepods.slice/kubepods-pod.slice")
	f.Add("/system.slice/kubepods-burstable-pod" + under(uidA) + ".slice:cri-containerd:" + idA)
	f.Add("//../..//")
	globs, err := parseGlobs([]string{"slurm/uid_*/job_*/step_*", "[a-z]*"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string) {
		defer memtest.Limit(t, 100*len(path))()
		if len(path) > 4*maxPath {
			return // such paths are rejected earlier
		}
		role, key := placeOf(path)
		if (role == pod || role == vm) != (key != "") {
			t.Errorf("placeOf(%q) = %d, %q", path, role, key)
		}
		if role == pod && (strings.ContainsAny(key, "/\n\x00") || len(key) > maxUID || key == "..") {
			t.Errorf("invalid UID %q", key)
		}
		for name := range strings.SplitSeq(path, "/") {
			if id := containerID(name); strings.ContainsAny(id, "/\n\x00-.") || len(id) > 128 {
				t.Errorf("invalid container ID %q", id)
			}
			for _, n := range []string{vmName(name), sanitise(name, maxGroup, true)} {
				if n == "." || n == ".." || len(n) > maxGroup || name != "" && batch.CheckText("name", n, maxGroup) != nil {
					t.Errorf("invalid name %q", n)
				}
			}
			if uid := podUID(name); strings.ContainsAny(uid, "/\n\x00") {
				t.Errorf("invalid UID %q", uid)
			}
		}
		if full, within, _ := match(globs, strings.Trim(path, "/")); full && within && strings.Count(path, "/") > 4 {
			t.Errorf("match(%q) = true, true beyond the maximum depth", path)
		}
		if _, err := parseGlobs([]string{path}); err == nil && path == "" {
			t.Error("parsed an empty pattern")
		}
	})
}

func FuzzCommandLine(f *testing.F) {
	f.Add([]byte("/usr/bin/qemu-system-x86_64\x00-name\x00guest=web,debug-threads=on\x00-uuid\x001\x00"))
	f.Add([]byte("kvm\x00-name\x00a,,b"))
	f.Add([]byte("kvm\x00-uuid\x00../..\x00"))
	f.Add([]byte("qemu-kvm\x00-name\x00guest=\xff\n\x00"))
	f.Add([]byte("kvm\x00-smp\x00cpus=4,maxcpus=8,sockets=2\x00--smp\x00sockets=99,cores=99,threads=99\x00"))
	f.Fuzz(func(t *testing.T, line []byte) {
		defer memtest.Limit(t, 100*len(line))()
		name, ok := guestOf(line)
		if strings.ContainsAny(name, "/\n\x00") || len(name) > maxVMName || name == "." || name == ".." {
			t.Errorf("invalid name %q", name)
		}
		if name != "" && !ok {
			t.Errorf("%q is not a machine but has a name", name)
		}
		if n := vcpusOf(line); n < 0 || n > maxVCPUs {
			t.Errorf("%d virtual CPUs", n)
		}
	})
}
