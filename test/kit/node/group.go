//go:build linux

package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Groups is where the kernel's control groups are mounted.
const Groups = "/sys/fs/cgroup"

// unified reports whether this machine has control groups of version 2 alone.
func unified() bool {
	_, err := os.Stat(filepath.Join(Groups, "cgroup.controllers"))
	return err == nil
}

// hierarchies are all mounted ones: runc makes groups in every one of them.
func hierarchies() (found []string, err error) {
	if unified() {
		return []string{Groups}, nil
	}
	entries, err := os.ReadDir(Groups)
	for _, e := range entries {
		folder := filepath.Join(Groups, e.Name())
		if to, err := filepath.EvalSymlinks(folder); err == nil { // cpu and cpuacct are often names of one hierarchy
			folder = to
		}
		if _, err := os.Stat(filepath.Join(folder, "cgroup.procs")); err == nil && !slices.Contains(found, folder) {
			found = append(found, folder)
		}
	}
	return found, err
}

// MakeGroup makes a control group in all hierarchies, and returns its name: a prefix and this process' number. It is
// removed with all that is in it, and so are those of tests that were killed.
func MakeGroup(t testing.TB, prefix string) string {
	t.Helper()
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	removeStale(t, all, prefix)
	name := prefix + strconv.Itoa(os.Getpid())
	t.Cleanup(func() {
		for _, h := range all {
			if err := removeGroup(filepath.Join(h, name)); err != nil {
				t.Errorf("a control group is left: %v", err)
			}
		}
	})
	for _, h := range all {
		if err := makeGroup(filepath.Join(h, name)); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

// MakeGroupIn makes a control group of a name in another, in all hierarchies. It is removed with that one.
func MakeGroupIn(t testing.TB, group, name string) string {
	t.Helper()
	name = filepath.Join(group, name)
	all, err := hierarchies()
	for _, h := range all {
		err = cmp.Or(err, makeGroup(filepath.Join(h, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// CPUTime is what a control group has used.
func CPUTime(group string) time.Duration {
	text, err := os.ReadFile(filepath.Join(Groups, "cpuacct", group, "cpuacct.usage"))
	if err == nil {
		ns, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return time.Duration(ns)
	}
	text, _ = os.ReadFile(filepath.Join(Groups, group, "cpu.stat"))
	var us int64
	_, _ = fmt.Sscanf(string(text), "usage_usec %d", &us)
	return time.Duration(us) * time.Microsecond
}

// makeGroup makes a group that processes and other groups can be in.
func makeGroup(group string) error {
	parent := filepath.Dir(group)
	if err := os.Mkdir(group, 0o755); err != nil {
		return err
	}
	if unified() { // what the parent has, all below it may have
		all, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
		for c := range strings.FieldsSeq(string(all)) {
			err = cmp.Or(err, set(parent, "cgroup.subtree_control", "+"+c))
		}
		if err != nil {
			return err
		}
	}
	// empty in a new group, which nothing can then enter
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(parent, file))
		if err == nil {
			err = set(group, file, string(text))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// The pods are to reach their limits also where others keep the machine busy.
	return set(group, "cpu.shares", maxShares)
}

const maxShares = "262144" // that a group can have

// set writes a file of a control group, where its hierarchy has it.
func set(group, file, text string) error {
	path := filepath.Join(group, file)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func removeStale(t testing.TB, hierarchies []string, prefix string) {
	t.Helper()
	for _, h := range hierarchies {
		found, err := filepath.Glob(filepath.Join(h, prefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range found {
			if _, err := os.Stat(filepath.Join("/proc", strings.TrimPrefix(filepath.Base(group), prefix))); err == nil {
				continue // of a test that runs
			}
			if err := removeGroup(group); err != nil {
				t.Log(err)
			}
		}
	}
}

// removeGroup removes a control group and those in it. A group whose last process has just ended stays busy for a
// moment.
func removeGroup(group string) error {
	var groups []string
	err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			groups = append(groups, path)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	deadline := time.Now().Add(5 * time.Second)
	for _, path := range slices.Backward(groups) {
		err := os.Remove(path)
		for ; err != nil && !errors.Is(err, fs.ErrNotExist) && time.Now().Before(deadline); err = os.Remove(path) {
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// enter are the commands of a shell that make a group, one of all hierarchies, the root of those that it sees, and go
// on with another command below it.
func enter(group string) (string, error) {
	all, err := hierarchies()
	var script strings.Builder
	for _, h := range all {
		fmt.Fprintf(&script, "echo 0 > %s\n", filepath.Join(h, group, "cgroup.procs"))
	}
	script.WriteString("exec unshare --cgroup sh -euc '")
	if unified() {
		// A group of version 2 that gives its groups controllers has no processes itself.
		fmt.Fprintf(&script, "cd %s\nmkdir node\necho 0 > node/cgroup.procs\n"+
			"for c in $(cat cgroup.controllers); do echo +$c > cgroup.subtree_control; done\ncd /\n",
			filepath.Join(Groups, group))
	}
	script.WriteString(`exec "$@"' sh "$@"` + "\n")
	return script.String(), err
}

// mountGroups are the commands that mount all hierarchies anew, so that the root of what a node sees is its own group.
func mountGroups() (string, error) {
	const hide = "umount -R " + Groups + " 2>/dev/null || true\n" // in a namespace of networks nothing is there
	if unified() {
		return hide + "mount -t cgroup2 none " + Groups + "\n", nil
	}
	all, err := hierarchies()
	var script strings.Builder
	fmt.Fprintf(&script, hide+"mount -t tmpfs none %s\n", Groups)
	for _, h := range all {
		name := filepath.Base(h)
		kind := "cgroup -o " + name
		switch name {
		case "unified":
			kind = "cgroup2"
		case "systemd":
			kind = "cgroup -o none,name=systemd"
		}
		fmt.Fprintf(&script, "mkdir %s\nmount -t %s none %[1]s\n", h, kind)
	}
	return script.String(), err
}
