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

// groupOf returns where the control group of a container stands, in the hierarchies below the kubelet's. It is looked
// for by name alone: nothing here knows how the kubelet arranges its groups, as the agent has to.
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
