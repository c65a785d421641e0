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

// Groups is the mount point of the kernel's control groups.
const Groups = "/sys/fs/cgroup"

// unified reports whether this machine uses only control groups of version 2.
func unified() bool {
	_, err := os.Stat(filepath.Join(Groups, "cgroup.controllers"))
	return err == nil
}

// hierarchies returns all mounted control group hierarchies. runc creates groups in every hierarchy.
func hierarchies() (found []string, err error) {
	if unified() {
		return []string{Groups}, nil
	}
	entries, err := os.ReadDir(Groups)
	for _, e := range entries {
		folder := filepath.Join(Groups, e.Name())
		if to, err := filepath.EvalSymlinks(folder); err == nil { // cpu and cpuacct may link to the same hierarchy
			folder = to
		}
		if _, err := os.Stat(filepath.Join(folder, "cgroup.procs")); err == nil && !slices.Contains(found, folder) {
			found = append(found, folder)
		}
	}
	return found, err
}

// MakeGroup creates a control group in all hierarchies and returns its name, which consists of the prefix and the
// process ID. The group and its subgroups are removed when the test ends. MakeGroup also removes groups of tests
// that were killed.
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
				t.Errorf("failed to remove control group: %v", err)
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

// MakeGroupIn creates a control group within another group in all hierarchies. It is removed together with its
// parent.
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

// CPUTime returns the processor time used by a control group.
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

// makeGroup creates a group that can contain processes and other groups.
func makeGroup(group string) error {
	parent := filepath.Dir(group)
	if err := os.Mkdir(group, 0o755); err != nil {
		return err
	}
	if unified() { // enable all controllers of the parent for its subgroups
		all, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
		for c := range strings.FieldsSeq(string(all)) {
			err = cmp.Or(err, set(parent, "cgroup.subtree_control", "+"+c))
		}
		if err != nil {
			return err
		}
	}
	// These files are empty in a new group, and no process can enter the group until they are set.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(parent, file))
		if err == nil {
			err = set(group, file, string(text))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// The pods have to reach their limits even if other processes keep the machine busy.
	return set(group, "cpu.shares", maxShares)
}

const maxShares = "262144" // maximum value that the kernel accepts

// set writes a file of a control group if the file exists in its hierarchy.
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
				continue // belongs to a running test
			}
			if err := removeGroup(group); err != nil {
				t.Log(err)
			}
		}
	}
}

// removeGroup removes a control group and its subgroups. It retries because a group remains busy for a moment after
// its last process has exited.
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

// enter returns shell commands that move the shell into the group in all hierarchies, make the group the root of
// its cgroup namespace and execute another command below it.
func enter(group string) (string, error) {
	all, err := hierarchies()
	var script strings.Builder
	for _, h := range all {
		fmt.Fprintf(&script, "echo 0 > %s\n", filepath.Join(h, group, "cgroup.procs"))
	}
	script.WriteString("exec unshare --cgroup sh -euc '")
	if unified() {
		// In version 2, a group that delegates controllers to its subgroups cannot contain processes.
		fmt.Fprintf(&script, "cd %s\nmkdir node\necho 0 > node/cgroup.procs\n"+
			"for c in $(cat cgroup.controllers); do echo +$c > cgroup.subtree_control; done\ncd /\n",
			filepath.Join(Groups, group))
	}
	script.WriteString(`exec "$@"' sh "$@"` + "\n")
	return script.String(), err
}

// mountGroups returns shell commands that remount all hierarchies so that the node sees its own group as the root.
func mountGroups() (string, error) {
	const hide = "umount -R " + Groups + " 2>/dev/null || true\n" // no file system is mounted in a network namespace
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
