//go:build linux

package real

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit/node"
)

// groupOf returns the path of the control group of a container. It searches for the name of the container and,
// unlike the agent, does not depend on the layout of the kubelet's groups.
func groupOf(t *testing.T, hierarchy, name, container string) string {
	t.Helper()
	found := ""
	err := filepath.WalkDir(filepath.Join(node.Groups, hierarchy, name),
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
		t.Fatalf("container %s has no control group below %s", container, filepath.Join(node.Groups, hierarchy, name))
	}
	return found
}

// cpuTime returns the CPU time of a control group as reported by the kernel.
func cpuTime(group string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(group, "cpuacct.usage"))
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Duration(ns), err
}

// throttled returns the number of periods in which a control group was throttled and the total number of periods.
func throttled(group string) (stopped, periods int, err error) {
	text, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscanf(string(text), "nr_periods %d\nnr_throttled %d", &periods, &stopped)
	return stopped, periods, err
}
