package host

import (
	"fmt"
	"os"
	"path/filepath"
)

// hierarchy is a mounted control group tree that counts CPU time. Most nodes have one. Nodes that mount both
// versions have two, and each process is in one group of each.
type hierarchy struct {
	version int    // 1 or 2
	dir     string // path with symbolic links resolved
	counter string // file that contains the CPU time of a group
	shares  string // tree of version 1 that contains cpu.shares; may equal dir or be empty
	whole   bool   // dir is the root of the hierarchy rather than a group in it
}

// hierarchies returns the trees below root, version 1 first. If a container is in both versions, version 1 is used,
// because it counts nanoseconds and its root counter is exact.
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
			return nil, fmt.Errorf("finding control groups: %w", err)
		}
		found = append(found, &hierarchy{
			version: 2, dir: target, counter: statFile, whole: !exists(target, "cgroup.type"),
		})
		break
	}
	if len(found) == 0 {
		if _, err := os.Stat(root); err != nil {
			return nil, fmt.Errorf("finding control groups: --cgroup-root: %w", err)
		}
		return nil, fmt.Errorf("finding control groups: --cgroup-root %s: neither cgroup.controllers nor cpuacct "+
			"exists", root)
	}
	return found, nil
}

// versionOne returns the tree of the cpuacct controller, which many systems mount together with cpu. It returns nil
// if there is none.
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
