//go:build linux

package real

import (
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

const (
	cgroupRoot  = "/sys/fs/cgroup"
	groupPrefix = "kubenergy-real-"
)

// controllers are those that a kubelet and runc use, each in a hierarchy of its own.
var controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio"}

// hierarchies are all mounted ones: runc makes groups in every one of them.
func hierarchies(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		folder := filepath.Join(cgroupRoot, e.Name())
		if to, err := filepath.EvalSymlinks(folder); err == nil { // cpu and cpuacct are often names of one hierarchy
			folder = to
		}
		if _, err := os.Stat(filepath.Join(folder, "cgroup.procs")); err == nil && !slices.Contains(found, folder) {
			found = append(found, folder)
		}
	}
	return found
}

// makeGroup makes the control group below which the kubelet keeps its own, and returns its name. It is removed with all
// that is in it, and so are those of tests that were killed.
func makeGroup(t *testing.T) string {
	t.Helper()
	all := hierarchies(t)
	removeStale(t, all)
	name := groupPrefix + strconv.Itoa(os.Getpid())
	t.Cleanup(func() {
		for _, h := range all {
			if err := removeGroup(filepath.Join(h, name)); err != nil {
				t.Errorf("a control group is left: %v", err)
			}
		}
	})
	for _, h := range all {
		group := filepath.Join(h, name)
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Fatal(err)
		}
		// empty in a new group, which nothing can then enter
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			text, err := os.ReadFile(filepath.Join(h, file))
			if err == nil {
				err = set(group, file, string(text))
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		// The pods are to reach their limits also where others keep the machine busy.
		if err := set(group, "cpu.shares", mostShares); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

const mostShares = "262144" // that a group can have

// set writes a file of a control group, where its hierarchy has it.
func set(group, file, text string) error {
	path := filepath.Join(group, file)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func removeStale(t *testing.T, hierarchies []string) {
	t.Helper()
	for _, h := range hierarchies {
		found, err := filepath.Glob(filepath.Join(h, groupPrefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range found {
			if _, err := os.Stat(filepath.Join("/proc",
				strings.TrimPrefix(filepath.Base(group), groupPrefix))); err == nil {
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

// groupOf returns where the control group of a container stands, in the hierarchies below the kubelet's. It is looked
// for by name alone: nothing here knows how the kubelet arranges its groups, as the agent has to.
func groupOf(t *testing.T, hierarchy, name, container string) string {
	t.Helper()
	found := ""
	err := filepath.WalkDir(filepath.Join(cgroupRoot, hierarchy, name),
		func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && entry.Name() == container {
				found = path
			}
			return err
		})
	if err != nil {
		t.Fatal(err)
	}
	if found == "" {
		t.Fatalf("container %s has no control group below %s", container, filepath.Join(cgroupRoot, hierarchy, name))
	}
	return found
}

// cpuTime is what a control group has used, as the kernel says.
func cpuTime(group string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(group, "cpuacct.usage"))
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Duration(ns), err
}

// throttled says in how many periods a control group was stopped by its limit, and of how many.
func throttled(group string) (stopped, periods int, err error) {
	text, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscanf(string(text), "nr_periods %d\nnr_throttled %d", &periods, &stopped)
	return stopped, periods, err
}
