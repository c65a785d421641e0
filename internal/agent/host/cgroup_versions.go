package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A hierarchy is one mounted tree of control groups that counts CPU time. There is one on most nodes; on those that
// mount both versions there are two, and a process is in a group of each.
type hierarchy struct {
	version int    // 1 or 2
	dir     string // without symbolic links
	counter string // the file that holds a group's CPU time
	shares  string // the tree of version 1 that holds cpu.shares; may be the same as dir, or empty
	whole   bool   // dir is the root of the hierarchy, not a group inside
}

// hierarchies returns the trees below root, version 1 first: where a container is in both, that one is read, as it
// counts nanoseconds and its root is exact.
func hierarchies(root string) ([]*hierarchy, error) {
	var found []*hierarchy
	if one := versionOne(root); one != nil {
		found = append(found, one)
	}
	for _, dir := range []string{root, filepath.Join(root, "unified")} {
		if !exists(dir, "cgroup.controllers") {
			continue
		}
		target, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, fmt.Errorf("looking for control groups: %w", err)
		}
		found = append(found, &hierarchy{
			version: 2, dir: target, counter: statFile, whole: !exists(target, "cgroup.type"),
		})
		break
	}
	if len(found) == 0 {
		if _, err := os.Stat(root); err != nil {
			return nil, fmt.Errorf("looking for control groups: --cgroup-root: %w", err)
		}
		return nil, fmt.Errorf("looking for control groups: --cgroup-root %s: %w", root, errNoGroups)
	}
	return found, nil
}

var errNoGroups = errors.New("there is neither cgroup.controllers nor cpuacct")

// versionOne returns the tree of the controller cpuacct, which many systems mount together with cpu.
func versionOne(root string) *hierarchy {
	mounts := []string{"cpuacct", "cpu,cpuacct", "cpuacct,cpu", "."}
	for _, name := range mounts {
		dir, err := filepath.EvalSymlinks(filepath.Join(root, name))
		if err != nil || !exists(dir, "cpuacct.usage") {
			continue
		}
		one := &hierarchy{version: 1, dir: dir, counter: usageFile, whole: exists(dir, "release_agent")}
		for _, cpu := range []string{dir, filepath.Join(root, "cpu"), filepath.Join(filepath.Dir(dir), "cpu")} {
			if target, err := filepath.EvalSymlinks(cpu); err == nil && exists(target, "cpu.shares") {
				one.shares = target
				break
			}
		}
		return one
	}
	return nil
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}
